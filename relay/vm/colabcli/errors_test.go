package colabcli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestTokensAreNotShown(t *testing.T) {
	for _, text := range []string{
		"500 Server Error: Internal Server Error for url: https://8080-m.prod.colab.dev/api/contents/x?authuser=0&colab-runtime-proxy-token=SECRET",
		"'Authorization': 'Bearer SECRET', 'Accept': 'x'",
		`{"token": "SECRET"}`, "refresh_token=SECRET", "Bearer SECRET",
		"https://accounts.google.com/o/oauth2/auth?state=SECRET",
	} {
		if got := lastLines(result{stderr: text}); strings.Contains(got, "SECRET") {
			t.Errorf("shown: %s", got)
		}
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
	if err := b.Create(within.Context(t), id, vm.Spec{}); err != nil {
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
