package colabcli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
)

func TestMain(m *testing.M) {
	if id := os.Getenv("RELAY_THAT_CREATES"); id != "" { // see TestAKilledRelayLosesNoVM
		b := New(Config{Program: os.Getenv("PROGRAM"), Dir: os.Getenv("DIR")})
		_, err := b.Create(context.Background(), id, vm.Spec{})
		fmt.Println(err)
		return
	}
	goleak.VerifyTestMain(m)
}

// hostile returns a Backend whose program is a shell script.
func hostile(t *testing.T, script string) *Backend {
	t.Helper()
	path := filepath.Join(t.TempDir(), "colab")
	writeProgram(t, path, "#!/bin/sh\n"+script+"\n")
	return New(Config{Program: path, Dir: t.TempDir()})
}

// writeProgram writes a program while no process is started: such a process would hold the open
// file for a moment, and until then the program is "text file busy".
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// A program that does not do what Google's does: nothing that it prints is taken for an
// answer, shown unsafely or kept without a bound.
func TestOutputThatMakesNoSenseIsAnError(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":                      "true",
		"a message only":               "echo '[colab] A new version is available'",
		"escapes":                      `printf '\033]0;title\007\033[2J[a\033[31m] b | hello\n'`,
		"bytes that are no text":       `printf '\377\376\000\001\n'`,
		"a row that is cut":            "echo '[a] b | Hardware: CPU | Shape: Stand'",
		"a shape that is new":          "echo '[a] b | Hardware: CPU | Shape: Huge | Variant: DEFAULT'",
		"rows, and that there is none": "echo '[a] b | Hardware: CPU | Shape: Standard | Variant: DEFAULT'; echo '[colab] No active sessions found on server.'",
		"a row and an error":           "echo '[a] b | Hardware: CPU | Shape: Standard | Variant: DEFAULT'; exit 1",
		"no credentials":               "echo 'No valid default credentials found. To authenticate' >&2; echo '[colab] No active sessions found on server.'",
		"ended by a signal":            "kill -9 $$",
		"1001 VMs":                     "for i in $(seq 1001); do echo \"[a$i] b$i | Hardware: CPU | Shape: Standard | Variant: DEFAULT\"; done",
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
	tier.Long(t)
	for name, script := range map[string]string{
		"100 MB without a line break": "head -c 100000000 /dev/zero",
		"100 MB of lines":             "yes '[a] b | Hardware: CPU | Shape: Standard | Variant: DEFAULT' | head -c 100000000",
		"100 MB of errors":            "head -c 100000000 /dev/zero >&2; exit 1",
	} {
		t.Run(name, func(t *testing.T) { mustNotList(t, hostile(t, script)) })
	}
	var kept tail
	kept.max = 10
	for range 1_000_000 {
		_, _ = kept.Write([]byte("abc"))
	}
	if got := kept.String(); got != "cabcabcabc" || !kept.dropped || cap(kept.kept) > 100 {
		t.Errorf("kept %q in %d bytes", got, cap(kept.kept))
	}
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

func TestManyVMsAreListed(t *testing.T) {
	b := hostile(t, "for i in $(seq 1000); do echo \"[a$i] b$i | Hardware: T4 | Shape: High-RAM | Variant: GPU\"; done; echo; echo '[colab] Pruned 3 stale local session(s).'")
	all, err := b.List(t.Context())
	want := vm.Machine{ID: "a1000", Spec: vm.Spec{Accelerator: "T4", HighRAM: true}, Ready: true}
	if err != nil || len(all) != 1000 || all[999] != want {
		t.Errorf("%d VMs, %v", len(all), err)
	}
}

// Processes that the program leaves behind keep its output open.
func TestChildrenThatHoldTheOutputDoNotHoldTheCall(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "pid")
	b := hostile(t, fmt.Sprintf("sleep 600 & echo $! >%s; echo '[colab] No active sessions found on server.'", mark))
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	mustEnd(t, mark)
}

func TestAnEndlessProgramEndsWithItsContext(t *testing.T) {
	for name, script := range map[string]string{
		"silent":             "sleep 600 & echo $! >$MARK; wait",
		"writing":            "yes & echo $! >$MARK; wait",
		"deaf":               "trap '' TERM INT HUP; sleep 600 & echo $! >$MARK; wait",
		"reading its stdin":  "cat; sleep 600 & echo $! >$MARK; wait",
		"asking on terminal": "(read answer </dev/tty) 2>/dev/null && exit 9; sleep 600 & echo $! >$MARK; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "pid")
			b := hostile(t, "MARK="+mark+"\n"+script)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for !exists(mark) {
					select {
					case <-ctx.Done():
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
				cancel()
			}()
			defer cancel()
			if _, err := b.List(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("list: %v", err)
			}
			mustEnd(t, mark)
		})
	}
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// mustEnd waits for the end of the process whose id is in a file.
func mustEnd(t *testing.T, mark string) {
	t.Helper()
	pid, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	stat := filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat")
	for deadline := time.Now().Add(10 * time.Second); ; {
		text, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s still runs", pid)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestTheLimitOfACallHolds(t *testing.T) {
	b := hostile(t, "exec sleep 600")
	_, err := b.run(t.Context(), call{argv: sessions.argv(nil), limit: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("%v", err)
	}
}

func TestAForgedOutcomeIsNotTaken(t *testing.T) {
	for name, script := range map[string]string{
		"another mark":     `echo 'colab-relay-AAAA:{"output":"eA==","name":"","value":""}'`,
		"no JSON":          `sed -n 's/.*"\(colab-relay-[A-Z0-9]*:\)".*/\1{/p'`,
		"a cut line":       `sed -n 's/.*"\(colab-relay-[A-Z0-9]*:\)".*/\1{"output":"eA=="/p'`,
		"too long a value": `m=$(sed -n 's/.*"\(colab-relay-[A-Z0-9]*:\)".*/\1/p'); printf '%s{"output":"","name":"E","value":"%s"}\n' "$m" "$(head -c 2000 /dev/zero | tr '\0' x)"`,
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
	for _, id := range []string{"", "-s", "--gpu", "a b", "a\nb", "../a", "a/b", "?", strings.Repeat("a", 101), "é"} {
		_, createError := b.Create(t.Context(), id, vm.Spec{})
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
