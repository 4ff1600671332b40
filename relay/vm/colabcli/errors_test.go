package colabcli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestWithoutALoginEveryCallSaysWhatToDo(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	id := vm.NewID()
	if _, err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
		t.Fatal(err)
	}
	program.Fault("logged_out", true)
	_, listError := b.List(within.Context(t))
	_, createError := b.Create(within.Context(t), vm.NewID(), vm.Spec{})
	for call, err := range map[string]error{"list": listError, "create": createError, "delete": b.Delete(within.Context(t), id)} {
		if !errors.Is(err, vm.ErrNotLoggedIn) || !strings.Contains(err.Error(), "colab-relay vm login") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestWhatTheProgramPrintsHasItsError(t *testing.T) {
	request := "Traceback (most recent call last):\n  File \"x.py\", line 1\ncolab_cli.client.ColabRequestError: Failed to issue request POST https://colab.research.google.com/tun/m/assign?nbh=abc&authuser=0: "
	for name, test := range map[string]struct {
		command command
		res     result
		class   error
		text    string
	}{
		"too old":                 {create, result{code: 2, stderr: "Usage: colab new\n╭─ Error ─╮\n│ No such option: --high-mem │"}, vm.ErrNotEnabled, "uv tool upgrade"},
		"another program":         {sessions, result{code: 2, stderr: "No such command 'sessions'."}, vm.ErrNotEnabled, "not Google's"},
		"a stale login":           {sessions, result{code: 1, stdout: "Enter the authorization code: ", stderr: "Aborted."}, vm.ErrNotLoggedIn, "vm login"},
		"a folded text":           {create, result{code: 1, stderr: "[colab] Allocation refused\n(precondition\nfailed). This can"}, vm.ErrTooMany, "does not say which"},
		"no entitlement":          {create, result{code: 1, stderr: "[colab] Backend rejected accelerator 'A100'. You may"}, vm.ErrNotEligible, "entitlement"},
		"none free":               {create, result{code: 1, stderr: request + "Service Unavailable"}, vm.ErrNoneFree, "Service Unavailable"},
		"high RAM refused":        {create, result{code: 1, stderr: request + "Bad Request"}, vm.ErrNotEligible, "Bad Request"},
		"a list that is not made": {sessions, result{code: 1, stderr: request + "Service Unavailable"}, nil, "Service Unavailable"},
		"something new":           {create, result{code: 1, stderr: "a\nb\nc\nd\n"}, nil, "b | c | d"},
		"nothing":                 {create, result{code: 3}, nil, "code 3 and printed: nothing"},
	} {
		err := refusal(test.command, test.res)
		if test.class != nil && !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
		for _, class := range []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrTooMany, vm.ErrNotLoggedIn, vm.ErrNotEnabled, vm.ErrGone} {
			if class != test.class && errors.Is(err, class) {
				t.Errorf("%s: is also %v", name, class)
			}
		}
	}
}

func TestTokensAreNotShown(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, text := range []string{
		"500 Server Error: Internal Server Error for url: https://8080-m.prod.colab.dev/api/contents/x?authuser=0&colab-runtime-proxy-token=SECRET",
		"HTTPSConnectionPool(host='8080-m', port=443): Max retries exceeded with url: /api/contents/x?colab-runtime-proxy-token=SECRET (Caused by X)",
		"'Authorization': 'Bearer SECRET', 'Accept': 'x'",
		"X-Colab-Runtime-Proxy-Token: SECRET",
		`{"token": "SECRET"}`, "refresh_token=SECRET", "Bearer SECRET",
		"https://accounts.google.com/o/oauth2/auth?state=SECRET",
	} {
		if got := lastLines(result{stderr: text}); strings.Contains(got, "SECRET") {
			t.Errorf("shown: %s", got)
		}
	}
	b, program := open(t)
	id := vm.NewID()
	if _, err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
		t.Fatal(err)
	}
	err := b.Upload(within.Context(t), id, "/no/such/folder/x", []byte("x"))
	if err == nil || strings.Contains(err.Error(), "TOKEN") || !strings.Contains(err.Error(), "Upload failed: 500 Server Error") {
		t.Errorf("%v", err)
	}
	program.Fault("banner", true) // does not hide the list
	if all, err := b.List(within.Context(t)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTheProgramGetsNoSecrets(t *testing.T) {
	t.Parallel()
	b, program := open(t)
	b.cfg.Environ = append(b.cfg.Environ, "NGROK_AUTHTOKEN=S", "COLAB_SECRET=S", "RELAY_HOLD=1s", "AWS_SECRET_ACCESS_KEY=S", "PYTHONSTARTUP=S", "PYTHONPATH=S", "HTTPS_PROXY=http://proxy", "LC_ALL=C.UTF-8")
	if _, err := b.List(within.Context(t)); err != nil {
		t.Fatal(err)
	}
	got := program.Calls()[0].Environ
	for name, value := range got {
		if value == "S" {
			t.Errorf("got %s", name)
		}
	}
	if got["HTTPS_PROXY"] != "http://proxy" || got["LC_ALL"] != "C.UTF-8" || got["HOME"] == "" || got["RELAY_HOLD"] != "" {
		t.Errorf("got %v", got)
	}
}

func TestContentIsNeverAnArgumentAndLeavesNoFile(t *testing.T) {
	tier.Long(t)
	b, program := open(t)
	t.Setenv("TMPDIR", t.TempDir())
	id := vm.NewID()
	if _, err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
		t.Fatal(err)
	}
	remote := filepath.Join(t.TempDir(), "secret")
	if err := b.Upload(within.Context(t), id, remote, []byte("the-content")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(within.Context(t), id, "print(open('"+remote+"').read())", time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, c := range program.Calls() {
		if strings.Contains(strings.Join(c.Argv, " "), "the-content") {
			t.Errorf("called with %q", c.Argv)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := b.Upload(within.Context(t), id, remote, make([]byte, vm.MaxUpload+1)); err == nil {
		t.Error("uploaded more than the bound")
	}
}

func TestAProgramThatIsNotThereSaysHowToInstallIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	home := t.TempDir()
	t.Setenv("HOME", home)
	b := New(Config{Dir: t.TempDir()})
	_, listError := b.List(t.Context())
	_, createError := b.Create(t.Context(), vm.NewID(), vm.Spec{})
	for call, err := range map[string]error{"list": listError, "create": createError, "login": b.Login(t.Context(), strings.NewReader(""), nil, nil)} {
		if !errors.Is(err, vm.ErrNotEnabled) || !strings.Contains(err.Error(), "uv tool install google-colab-cli") {
			t.Errorf("%s: %v", call, err)
		}
	}
	local := filepath.Join(home, ".local", "bin")
	if err := os.MkdirAll(local, 0o700); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(local, "colab"), "#!/bin/sh\necho '"+noRows+"'\n")
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("in ~/.local/bin: %+v, %v", all, err)
	}
}

func TestLoginShowsGooglesQuestionAndChecksTheAnswer(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	program.Fault("logged_out", true)
	var out, errs bytes.Buffer
	if err := b.Login(within.Context(t), strings.NewReader("a wrong code\n"), &out, &errs); err == nil {
		t.Error("logged in with a wrong code")
	}
	if !strings.Contains(errs.String(), "https://accounts.google.com/") || !strings.Contains(out.String(), "Enter the authorization code: ") {
		t.Errorf("shown: %q, %q", out.String(), errs.String())
	}
	program.Fault("logged_out", nil)
	if err := b.Login(within.Context(t), strings.NewReader(""), &out, &errs); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Login(ctx, strings.NewReader(""), &out, &errs); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
