package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/config"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/within"
)

// fakeExecutor is an executor with the faults that a test gives it.
type fakeExecutor struct {
	secret   auth.Secret
	clock    time.Duration // ahead of this computer's
	protocol int
	page     http.HandlerFunc // that answers in its place
	kernel   contract.Kernel
}

func (e fakeExecutor) start(t *testing.T) string {
	t.Helper()
	now := func() time.Time { return time.Now().Add(e.clock) }
	executor := linetest.NewExecutor(e.secret, contract.Instance{ID: "vm-1", Start: "s"}, now)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, _, err := executor.Open(r)
		answer := any(e.kernel)
		switch {
		case e.page != nil:
			e.page(w, r)
			return
		case err != nil:
			answer = err
		case r.URL.Path == contract.PathHealth:
			answer = contract.Health{Status: "ok", Version: "9.9", Protocol: e.protocol, UptimeMinutes: 3}
		}
		executor.Reply(w, r, x, 0, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func sound() fakeExecutor {
	return fakeExecutor{secret: auth.GenerateSecret(), protocol: contract.Protocol, kernel: contract.Kernel{Status: contract.KernelIdle, KernelID: "k", Python: "3.12.1"}}
}

func page(status int, ngrok string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if ngrok != "" {
			w.Header().Set("Ngrok-Error-Code", ngrok)
		}
		w.WriteHeader(status)
	}
}

func TestTheDoctorNamesEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeExecutor)
		fails  bool
		want   []string // lines, by pattern
	}{
		"sound": {func(*fakeExecutor) {}, false, []string{
			`ok .*env +http://127`, `ok .*connected: executor 9.9, up 3 min .* kernel idle \(Python 3.12.1\), latency \d+ ms`, `ok .*VM: no code was run on it from this computer yet \(instance vm-1\)`,
		}},
		"executor gone": {func(e *fakeExecutor) { e.page = page(404, "ERR_NGROK_3200") }, true, []string{
			`fail .*ERR_NGROK_3200: no executor is online`, `next step: The VM has ended .* start the executor again`,
		}},
		"quota":          {func(e *fakeExecutor) { e.page = page(403, "ERR_NGROK_727") }, true, []string{`fail .*tunnel_quota.*requests for this month`, `next step: .*usage page`}},
		"newer protocol": {func(e *fakeExecutor) { e.protocol, e.secret = contract.Protocol+1, auth.GenerateSecret() }, true, []string{`fail .*wrong_protocol: the executor uses protocol \d+ and this relay protocol \d+: the relay on this computer is older`, `next step: Update the relay on this computer`}},
		"another secret": {func(e *fakeExecutor) { e.secret = auth.GenerateSecret() }, true, []string{`fail .*wrong_secret`, `next step: .*relay pair`}},
		"clock":          {func(e *fakeExecutor) { e.clock = time.Hour }, false, []string{`warn .*clock: \S+ from the executor's`, `next step: set the clock of this computer`, `ok .*VM`}},
		"kernel dead": {func(e *fakeExecutor) {
			e.kernel = contract.Kernel{Status: contract.KernelDead, KernelID: "k", Reason: "out of memory"}
		}, true, []string{
			`fail .*kernel: dead: out of memory`, `next step: run .colab-relay restart.`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			configtest.Home(t)
			e := sound()
			ours := e.secret
			c.change(&e)
			out, err := examine(t, map[string]string{"COLAB_URL": e.start(t), "COLAB_SECRET": ours.Reveal()})
			if c.fails != (err != nil) || strings.Contains(out, ours.Reveal()) {
				t.Errorf("%v\n%s", err, out)
			}
			wantLines(t, out, c.want)
		})
	}
}

// wantLines checks that out has a line for each pattern, in this order.
func wantLines(t *testing.T, out string, patterns []string) {
	t.Helper()
	rest := out
	for _, pattern := range patterns {
		at := regexp.MustCompile(`(?m)^` + strings.ReplaceAll(pattern, "next step", ` +next step`) + `.*$`).FindStringIndex(rest)
		if at == nil {
			t.Errorf("no line like %q in order in\n%s", pattern, out)
			return
		}
		rest = rest[at[1]:]
	}
}

func TestTheDoctorReportsANewVM(t *testing.T) {
	configtest.Home(t)
	e := sound()
	env := map[string]string{"COLAB_URL": e.start(t), "COLAB_SECRET": e.secret.Reveal()}
	store, err := pairing.OpenDefault()
	if err != nil {
		t.Fatal(err)
	}
	key := pairing.Runtime{Name: pairing.EnvName, Secret: e.secret}.Key()
	for seen, want := range map[pairing.LastSeen][]string{
		{InstanceID: "vm-1", KernelID: "k"}:   {`ok .*VM: the same as last time`},
		{InstanceID: "vm-1", KernelID: "old"}: {`ok .*VM: the same as last time`, `warn .*kernel: a different one than last time, without the earlier kernel's variables`},
		{InstanceID: "vm-0", KernelID: "old"}: {`warn .*VM: a different one than last time.*\(instance vm-1\)`, `warn .*kernel`},
	} {
		if err := store.SaveLastSeen(key, seen); err != nil {
			t.Fatal(err)
		}
		out, err := examine(t, env)
		if err != nil {
			t.Errorf("%+v: %v", seen, err)
		}
		wantLines(t, out, want)
		if store.LastSeen(key) != seen {
			t.Error("the doctor changed what was last seen")
		}
	}
}

func TestTheDoctorChecksSettingsHostsAndPairings(t *testing.T) {
	dir := configtest.Home(t)
	store, err := pairing.OpenDefault()
	if err != nil {
		t.Fatal(err)
	}
	e := sound()
	for name, url := range map[string]string{"default": e.start(t), "an-older-one": "http://127.0.0.1:1"} {
		if _, err := store.Put(pairing.Runtime{Name: name, URL: url, Secret: e.secret}); err != nil {
			t.Fatal(err)
		}
	}
	this, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(dir, "older", "colab-relay")
	if err := errors.Join(os.Mkdir(filepath.Dir(older), 0o700), os.WriteFile(older, []byte("#!/bin/sh\necho v0.9.0\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for file, program := range map[string]string{".cursor/mcp.json": this, ".gemini/settings.json": "/gone/relay", "config/Claude/claude_desktop_config.json": older} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"mcpServers": {"colab-relay": {"command": %q}}}`, program), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(store.Path(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := examine(t, map[string]string{"RELAY_HOLD": "soon"})
	if err == nil || err.Error() != "2 checks failed" {
		t.Errorf("%v", err)
	}
	wantLines(t, out, []string{
		`fail .*settings .*RELAY_HOLD`, `warn .*Claude Desktop starts colab-relay v0.9.0 \(.*/older/colab-relay\); this program is dev`, `next step: .*relay install claude-desktop`,
		`ok .*Cursor starts this relay`, `fail .*Gemini CLI is set up to start /gone/relay, which does not exist`, `next step: .*relay install gemini`,
		`warn .*pairings .*other users of this computer can read`, `warn .*an-older-one +unreachable: nothing listens`, `ok .*default .*connected: executor`,
	})
}

// Text from a VM must not reach the terminal as an escape sequence.
func TestTheDoctorPrintsNoEscapes(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out, width: 5}
	r.line(ok, "x", "kernel: %s", "\x1b[2Jdead")
	r.step("%s", "\x1b]0;t\a")
	if strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("%q", out.String())
	}
}

// examine returns the doctor's report in that environment.
func examine(t *testing.T, env map[string]string) (string, error) {
	t.Helper()
	set := config.Settings{Getenv: func(name string) string { return env[name] }}
	var out bytes.Buffer
	_, err := Run(within.Context(t), Checkup{Config: config.Load(set), Settings: set, Version: "dev"}, &out)
	return out.String(), err
}
