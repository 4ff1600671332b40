package colabcli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/vm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile returns a Backend whose program is a shell script. It is written while no process is
// started: such a process would hold the open file for a moment, and the program were busy.
func hostile(t *testing.T, script string) *Backend {
	t.Helper()
	path := filepath.Join(t.TempDir(), "colab")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return New(Config{Program: path, Dir: t.TempDir()})
}

// A program that does not do what Google's does: nothing that it prints is taken for an
// answer, shown unsafely or kept without a bound.
func TestOutputThatMakesNoSenseIsAnError(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":             "true",
		"escapes":             `printf '\033]0;title\007\033[2J[a\033[31m] b | hello\n'`,
		"a shape that is new": "echo '[a] b | Hardware: CPU | Shape: Huge | Variant: DEFAULT'",
		"a row and an error":  "echo '[a] b | Hardware: CPU | Shape: Standard | Variant: DEFAULT'; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hostile(t, script)
			mustNotList(t, b)
			if _, err := b.Exec(t.Context(), "colab-relay-0", "print(1)", time.Second); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("exec: %v", err)
			}
			if err := b.Delete(t.Context(), "colab-relay-0"); err == nil {
				t.Error("deleted")
			}
		})
	}
}

func TestOutputWithoutEndIsNotKept(t *testing.T) {
	mustNotList(t, hostile(t, "head -c 100000000 /dev/zero"))
}

// mustNotList fails the test unless List returns an error that is safe to show.
func mustNotList(t *testing.T, b *Backend) {
	t.Helper()
	all, err := b.List(t.Context())
	if err == nil {
		t.Fatalf("%d VMs", len(all))
	}
	if text := err.Error(); len(text) > 2000 || strings.ContainsAny(text, "\x1b\x07\x00\n") {
		t.Errorf("the error is %d bytes: %.300q", len(text), text)
	}
	if errors.Is(err, vm.ErrGone) || errors.Is(err, vm.ErrExists) {
		t.Errorf("it counts as proof: %v", err)
	}
}

func TestAForgedOutcomeIsNotTaken(t *testing.T) {
	for name, script := range map[string]string{
		"another mark": `echo 'colab-relay-AAAA:{"output":"eA==","name":"","value":""}'`,
		"a cut line":   `sed -n 's/.*"\(colab-relay-[A-Z0-9]*:\)".*/\1{"output":"eA=="/p'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := hostile(t, `[ "$1" = exec ] || exit 1; `+script).Exec(t.Context(), "colab-relay-0", "print(1)", time.Second)
			if err == nil {
				t.Errorf("taken: %q", out)
			}
		})
	}
}

func TestNamesThatCouldBeOptionsAreNotPassed(t *testing.T) {
	b := hostile(t, "echo \"$*\" >&2; exit 1")
	for _, id := range []string{"", "--gpu", "a b", "../a", strings.Repeat("a", 101)} {
		createError := b.Create(t.Context(), id, vm.Spec{})
		_, execError := b.Exec(t.Context(), id, "1", time.Second)
		for call, err := range map[string]error{"create": createError, "exec": execError, "upload": b.Upload(t.Context(), id, "/tmp/x", nil), "touch": b.Touch(t.Context(), id)} {
			if !errors.Is(err, vm.ErrUnknown) {
				t.Errorf("%s of %q: %v", call, id, err)
			}
		}
	}
	if entries, err := os.ReadDir(b.cfg.Dir); err != nil || len(entries) != 0 {
		t.Errorf("files: %v, %v", entries, err)
	}
}
