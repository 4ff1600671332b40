package sshhost

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/privileged"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// laptop is a computer with the relay.
type laptop struct {
	t    *testing.T
	bin  harness.Binaries
	home string
	box  *box
}

func (l *laptop) command(args ...string) *exec.Cmd {
	cmd := exec.Command(l.bin.Relay, args...)
	cmd.Env = []string{"HOME=" + l.home, "XDG_CONFIG_HOME=" + l.home + "/config", "PATH=" + os.Getenv("PATH")}
	return cmd
}

// relay runs a command and returns what it printed.
func (l *laptop) relay(args ...string) string {
	l.t.Helper()
	out, err := l.command(args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("colab-relay %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (l *laptop) pairing() pairing.Runtime {
	l.t.Helper()
	r, err := pairing.Open(filepath.Join(l.home, "config", "colab-relay")).Get("box")
	must(l.t, err)
	return r
}

// holder is a `colab-relay ssh` that holds a connection.
type holder struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   harness.Output
	ended chan struct{}
}

// ssh starts `colab-relay ssh box`, and returns when it is connected.
func (l *laptop) ssh(args ...string) *holder {
	l.t.Helper()
	h := &holder{t: l.t, ended: make(chan struct{})}
	h.cmd = l.command(append(append([]string{"ssh", "box"}, args...), "--", "-F", l.box.config)...)
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	must(l.t, h.cmd.Start())
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait()
	}()
	l.t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.ended
		if l.t.Failed() {
			l.t.Logf("colab-relay ssh printed:\n%s", h.out.String())
		}
	})
	h.shows("Connected: runtime \"box\"")
	return h
}

func (h *holder) shows(want string) {
	h.t.Helper()
	within.Until(h.t, "it shows "+want, func() bool {
		select {
		case <-h.ended:
			if !strings.Contains(h.out.String(), want) {
				h.t.Fatalf("it ended:\n%s", h.out.String())
			}
		default:
		}
		return strings.Contains(h.out.String(), want)
	})
}

// interrupt presses Ctrl-C.
func (h *holder) interrupt() {
	h.t.Helper()
	must(h.t, h.cmd.Process.Signal(syscall.SIGINT))
	<-h.ended
	if code := h.cmd.ProcessState.ExitCode(); code != 0 {
		h.t.Errorf("after Ctrl-C the exit code is %d", code)
	}
}

func TestAMachineIsConnectedLeftAndFoundAgain(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	l := &laptop{t, built(t), t.TempDir(), newBox(t)}
	h := l.ssh("--executor", l.bin.Executor, "--python", stacks.Old(t).Python)
	first := l.pairing()
	run := func(code string) string {
		t.Helper()
		out, err := l.command("run", "--runtime", "box", "-c", code).Output()
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run("kept = 'kept'; print(6 * 7)"); got != "42" {
		t.Errorf("the run prints %q", got)
	}
	if got := run("import os; print(os.getcwd())"); got != l.box.home {
		t.Errorf("code runs in %q", got)
	}
	if found := processes(first.Secret.Reveal()); len(found) != 0 {
		t.Errorf("the secret is in the arguments of %v", found)
	}
	if out := l.relay("ssh", "box", "--", "-F", l.box.config); !strings.Contains(out, "connected already") {
		t.Errorf("a second one prints:\n%s", out)
	}

	for _, pid := range processes("-L " + strings.TrimPrefix(first.URL, "http://")) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	h.shows("was lost and is back")
	if got := run("print(kept)"); got != "kept" || l.pairing().URL != first.URL {
		t.Errorf("after the loss, the run prints %q, at %s (was %s)", got, l.pairing().URL, first.URL)
	}

	h.interrupt()
	if !strings.Contains(h.out.String(), "goes on") {
		t.Errorf("after Ctrl-C it shows:\n%s", h.out.String())
	}
	h = l.ssh("--python", stacks.Old(t).Python) // needs no executor any more
	if got := run("print(kept)"); got != "kept" || !strings.Contains(h.out.String(), "has been running since an earlier call") || !l.pairing().Secret.Equal(first.Secret) {
		t.Errorf("the second time, the run prints %q, and it shows:\n%s", got, h.out.String())
	}
	h.interrupt()

	out := l.relay("ssh", "box", "--stop", "--python", stacks.Old(t).Python, "--", "-F", l.box.config)
	if !strings.Contains(out, "has ended") || !strings.Contains(out, l.box.home) {
		t.Errorf("--stop prints:\n%s", out)
	}
	if found := processes(l.box.home + "/.local/share/colab-relay"); len(found) != 0 {
		t.Errorf("%v still run", found)
	}
	out = l.relay("ssh", "box", "--stop", "--python", stacks.Old(t).Python, "--", "-F", l.box.config)
	if !strings.Contains(out, "No executor of") {
		t.Errorf("a second --stop prints:\n%s", out)
	}
	comeback := "`colab-relay ssh box --python " + stacks.Old(t).Python + " -- -F " + l.box.config + "`"
	for _, args := range [][]string{{"run", "--runtime", "box", "-c", "1"}, {"status"}, {"doctor"}} {
		failed, err := l.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(failed), comeback) || strings.Contains(string(failed), "cell") {
			t.Errorf("without the connection, %s prints, without %s:\n%s", args[0], comeback, failed)
		}
	}
}
