package e2e

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// vmUser is a person who starts VMs by Google's API, which colabapitest imitates. The VM's
// Jupyter server, its kernels and the executor are real.
type vmUser struct {
	t      *testing.T
	google *colabapitest.Google
	dir    string
	shown  bytes.Buffer // all that the relay printed
}

func (u *vmUser) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(within.Context(u.t), binaries.Relay, args...)
	cmd.Dir = u.dir
	cmd.Env = append(u.google.Env(), "PATH="+u.t.TempDir(), "HOME="+u.dir, "XDG_CONFIG_HOME="+u.dir+"/config", "XDG_CACHE_HOME="+u.dir+"/cache", "XDG_DATA_HOME="+u.dir+"/data")
	return cmd
}

// relay runs a command, which must succeed, and returns its output.
func (u *vmUser) relay(args ...string) string {
	u.t.Helper()
	cmd := u.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	u.shown.Write(out)
	u.shown.Write(errs.Bytes())
	if err != nil {
		u.t.Fatalf("relay %s: %v\n%s%s", args, err, out, &errs)
	}
	return string(out)
}

// login logs in with the link that the relay prints, as no browser can be opened.
func (u *vmUser) login() {
	u.t.Helper()
	cmd := u.command("vm", "login", "--backend", "api", "--client", u.google.ClientFile(u.t), "--yes")
	errs, err := cmd.StderrPipe()
	cmd.Stdout = &u.shown
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/o/oauth2/auth\S+`)
	var said strings.Builder
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if page := link.FindString(lines.Text()); page != "" {
			if err := u.google.Approve(within.Context(u.t), page); err != nil {
				u.t.Error(err)
			}
		}
	}
	err = cmd.Wait() // before it, the command's output is still written to u.shown
	u.shown.WriteString(said.String())
	if err != nil {
		u.t.Fatalf("login: %v\n%s", err, &said)
	}
}

// mustHideTokens checks that nothing shows a token of Google's, and that only the login file
// has one.
func (u *vmUser) mustHideTokens() {
	u.t.Helper()
	check := func(where, text string) {
		for _, s := range u.google.Secrets() {
			if strings.Contains(text, s) {
				u.t.Errorf("%s contains a token: %.6s…", where, s)
			}
		}
	}
	check("the terminal", u.shown.String())
	logins := 0
	err := filepath.WalkDir(u.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Name() == "google-login.json" {
			logins++
			return nil
		}
		text, err := os.ReadFile(path)
		check(path, string(text))
		return err
	})
	if err != nil || logins != 1 {
		u.t.Errorf("%d login files, %v", logins, err)
	}
}

func TestAVMOfGooglesAPIIsUsedByCommandsAndTools(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := &vmUser{t: t, google: colabapitest.Start(t), dir: t.TempDir()}
	u.login()
	u.relay("vm", "up", "--gpu", "A100,T4", "--executor", binaries.Executor, "--tunnel", "proxy")
	running := u.google.Running()
	if out := u.relay("vm", "list"); len(running) != 1 || !strings.Contains(out, running[0]) || !strings.Contains(out, "T4") {
		t.Fatalf("runs %q; listed:\n%s", running, out)
	}
	if out := u.relay("run", "-c", "print(6 * 7)"); !strings.Contains(out, "42") {
		t.Errorf("run printed %q", out)
	}
	if out := u.relay("status"); !strings.Contains(out, "connected") {
		t.Errorf("status printed %q", out)
	}
	u.google.TokensExpireAfter(3)
	h, err := harness.StartHost(within.Context(t), harness.HostConfig{Binary: binaries.Relay, Dir: u.dir, Env: append(u.google.Env(), "RELAY_HOLD=20s", "XDG_CONFIG_HOME="+u.dir+"/config", "XDG_DATA_HOME="+u.dir+"/data")})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		want(t, quick(t, h, "6 * 7"), map[string]any{"success": true, "result": "42", "runtime": "vm"})
	}
	h.Close()
	u.shown.WriteString(h.Stderr.String())
	u.relay("vm", "down", "vm")
	if left := u.google.Running(); len(left) != 0 {
		t.Errorf("runs: %q", left)
	}
	u.mustHideTokens()
}
