package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// laptop is a person's computer: a terminal for the relay's commands, and hosts that start
// a relay. They share only the files in one home folder.
type laptop struct {
	t   *testing.T
	dir string
	env []string // for commands, beside that of newLaptop
}

func newLaptop(t *testing.T) laptop { return laptop{t: t, dir: t.TempDir()} }

func (l laptop) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(within.Context(l.t), binaries.Relay, args...)
	cmd.Dir = l.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "XDG_CONFIG_HOME=" + l.dir + "/config", "XDG_CACHE_HOME=" + l.dir + "/cache", "XDG_DATA_HOME=" + l.dir + "/data"}, l.env...)
	return cmd
}

// relay runs a command, which must succeed, and returns its output.
func (l laptop) relay(args ...string) string {
	l.t.Helper()
	cmd := l.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("relay %s: %v\n%s%s", args[0], err, out, &errs)
	}
	return string(out)
}

// host starts a host whose relay uses the paired runtimes only.
func (l laptop) host() *harness.Host {
	l.t.Helper()
	h, err := harness.StartHost(within.Context(l.t), harness.HostConfig{Binary: binaries.Relay, Dir: l.dir, Env: []string{"RELAY_HOLD=20s"}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		h.Close()
		if l.t.Failed() {
			l.t.Logf("the relay logged:\n%s", h.Stderr)
		}
	})
	return h
}

// colab is an account with changing VMs and a permanent domain and secret.
type colab struct {
	t      *testing.T
	edge   *ngroktest.Edge
	secret string // empty: each VM makes its own
	args   []string
}

// newVM starts an executor on a new VM.
func (c colab) newVM() *harness.Executor {
	c.t.Helper()
	e, err := harness.StartExecutor(within.Context(c.t), harness.ExecutorConfig{
		Binary: binaries.Executor, Python: stacks.Old(c.t).Python, Dir: c.t.TempDir(), Secret: c.secret, Args: c.args,
		Env: []string{"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + c.edge.Addr, "COLAB_RELAY_NGROK_CA=" + c.edge.CAFile},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		e.Kill()
		if c.t.Failed() {
			c.t.Logf("the executor printed:\n%s", e.Output)
		}
	})
	return e
}
