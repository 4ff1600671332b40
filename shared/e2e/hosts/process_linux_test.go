package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/shared/e2e/harness"
)

func TestAHostGetsAnEnvironmentOfItsOwn(t *testing.T) {
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "a person's")
	home := filepath.Join(t.TempDir(), "home")
	s := setting{home: home, work: filepath.Join(home, "work"), program: "/bin/sh"}
	cmd, err := s.command(t.Context(), []string{"-c", "pwd; env; echo to stderr >&2"}, []string{"A=1"})
	if err != nil {
		t.Fatal(err)
	}
	printed, err := output(cmd)
	if err != nil || !strings.HasPrefix(printed, s.work+"\n") {
		t.Errorf("%v: %s", err, printed)
	}
	for _, want := range []string{"HOME=" + home + "\n", "TMPDIR=" + home + "/tmp\n", "A=1\n", "to stderr\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing: %s", want, printed)
		}
	}
	if strings.Contains(printed, "ANTHROPIC_AUTH_TOKEN") {
		t.Error("the host got a person's variable")
	}
}

func TestAnInteractiveHostGetsATerminal(t *testing.T) {
	home := t.TempDir()
	s := setting{home: home, work: filepath.Join(home, "work"), program: "/bin/sh"}
	cmd, err := s.command(t.Context(), []string{"-c", "stty size; test -t 0 && test -t 1 && echo yes; exec sleep 1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := startInTerminal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = harness.Poll(ctx, func() (bool, error) {
		screen.mu.Lock()
		defer screen.mu.Unlock()
		return strings.Contains(string(screen.screen), "yes"), nil
	})
	if drawn := screen.close(); err != nil || !strings.Contains(drawn, "50 180") {
		t.Errorf("%v: %q", err, drawn)
	}
	<-screen.ended
}

func TestAScreenIsBounded(t *testing.T) {
	home := t.TempDir()
	s := setting{home: home, work: filepath.Join(home, "work"), program: "/bin/sh"}
	cmd, err := s.command(t.Context(), []string{"-c", "head -c 100000 /dev/zero | tr '\\0' x; echo; echo the end"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := startInTerminal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	<-screen.ended
	if drawn := screen.close(); len(drawn) != maxScreen || !strings.HasSuffix(drawn, "the end\r\n") {
		t.Errorf("%d bytes, want %d, that end with %q", len(drawn), maxScreen, drawn[max(0, len(drawn)-20):])
	}
}

// A daemon that a host starts has a session of its own, and lives on.
func TestNothingThatAHostStartedIsLeft(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", "-c", "setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := harness.Poll(ctx, func() (bool, error) {
		self, err := harness.ProcessOf(os.Getpid())
		return len(self.Children) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	if self, err := harness.ProcessOf(os.Getpid()); err != nil || len(self.Children) > 0 {
		t.Errorf("%v are left, %v", self.Children, err)
	}
}

// Some systems allow a namespace and then no interface in it.
func TestTheWorkerRunsAgainWithoutANamespaceIfItGetsNoLoopback(t *testing.T) {
	for code, want := range map[string]error{"0": nil, "1": errReported} {
		dir := t.TempDir()
		self := filepath.Join(dir, "worker")
		script := "#!/bin/sh\necho \"$@\" >>" + dir + "/runs\n[ \"$1\" != -isolated ] || exit 3\nexit " + code + "\n"
		if err := os.WriteFile(self, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := runWorker(t.Context(), self, []string{"-worker", "x"}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		// Where the system allows no namespace at all, only the second one runs.
		runs, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil || !strings.HasSuffix("-isolated -worker x\n-worker x\n", string(runs)) {
			t.Errorf("%v: %q", err, runs)
		}
	}
}

func TestAWorkerThatIsKilledIsAnError(t *testing.T) {
	self := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(self, []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := runWorker(t.Context(), self, nil); err == nil || errors.Is(err, errReported) {
		t.Error(err)
	}
}
