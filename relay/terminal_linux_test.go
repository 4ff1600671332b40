package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// screen is a pseudo-terminal and what it shows.
type screen struct {
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{master: master, slave: slave}
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, 4096)
		for {
			n, err := master.Read(piece)
			s.mu.Lock()
			s.shown.Write(piece[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { slave.Close(); <-done; master.Close() })
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// awaitHidden waits for the prompt, after which the terminal does not show what is typed.
func (s *screen) awaitHidden(t *testing.T) {
	t.Helper()
	within.Until(t, "the prompt is shown, and the terminal hides what is typed", func() bool {
		state, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return state.Lflag&unix.ECHO == 0 && strings.Contains(s.text(), ": ")
	})
}

func (s *screen) echoes(t *testing.T) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

func TestAPairingStringIsNotShown(t *testing.T) {
	vm := fakevm.Start(t)
	for name, broken := range map[string]func(string) []string{
		"one line":       func(s string) []string { return []string{s} },
		"a broken paste": func(s string) []string { return []string{s[:30], s[30:60], s[60:]} },
	} {
		t.Run(name, func(t *testing.T) {
			configtest.Home(t)
			s := newScreen(t)
			var out bytes.Buffer
			code := make(chan int, 1)
			go func() {
				code <- run(t.Context(), []string{cli.CommandName, "pair"}, configtest.Environ(), terminal.Streams{In: s.slave, Out: &out, Err: s.slave})
			}()
			for _, line := range broken(vm.Pairing()) {
				s.awaitHidden(t)
				fmt.Fprintln(s.master, line)
			}
			if got := <-code; got != 0 || !strings.Contains(out.String(), " connected: executor fake") {
				t.Errorf("%d %q, shown %q", got, &out, s.text())
			}
			if text := s.text(); strings.Contains(text, vm.Pairing()[:20]) || !s.echoes(t) {
				t.Errorf("the terminal showed %q and echoes: %v", text, s.echoes(t))
			}
		})
	}
}

// Who looks at a cell sees what runs, whatever the notebook's author put into it.
func TestACellOnATerminalHidesNothing(t *testing.T) {
	dir := configtest.Home(t)
	path := filepath.Join(dir, "n.ipynb")
	text := `{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": null, "source": "evil()\rgood\b\b\b\b\u001b[8m()\nx = 1"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newScreen(t)
	if code := run(t.Context(), []string{cli.CommandName, "nb", "cells", path, "a"}, configtest.Environ(), terminal.Streams{In: s.slave, Out: s.slave, Err: s.slave}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	within.Until(t, "the cell is shown", func() bool { return strings.Contains(s.text(), "x = 1") })
	if shown := strings.ReplaceAll(s.text(), "\r\n", "\n"); strings.ContainsAny(shown, "\r\b\x1b") || !strings.Contains(shown, "evil()") {
		t.Errorf("it shows %q", shown)
	}
}

// startExecutor starts an executor and returns the settings that name it.
func startExecutor(t *testing.T) map[string]string {
	t.Helper()
	binary, err := buildExecutor()
	if err != nil {
		t.Fatal(err)
	}
	secret := auth.GenerateSecret().Reveal()
	e, err := harness.StartExecutor(t.Context(), harness.ExecutorConfig{Binary: binary, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
		defer cancel()
		e.Stop(ctx)
	})
	return map[string]string{"COLAB_URL": e.Ready.LocalURL, "COLAB_SECRET": secret}
}

func TestOnATerminal(t *testing.T) {
	tier.Long(t)
	configtest.Home(t)
	settings := startExecutor(t)
	settings["TERM_PROGRAM"], settings["LOCAL_SAVE_DIR"] = "iTerm.app", t.TempDir()
	environ := configtest.Environ()
	getenv := func(name string) string {
		if value, ok := settings[name]; ok {
			return value
		}
		return environ(name)
	}
	start := func(ctx context.Context, s *screen, args ...string) chan int {
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, append([]string{cli.CommandName}, args...), getenv, terminal.Streams{In: s.slave, Out: s.slave, Err: s.slave})
		}()
		return code
	}

	t.Run("a password is not shown", func(t *testing.T) {
		s := newScreen(t)
		code := start(t.Context(), s, "run", "-c", "import getpass\nprint(len(getpass.getpass()))")
		s.awaitHidden(t)
		fmt.Fprintln(s.master, "s3cret")
		if got := <-code; got != 0 || !s.echoes(t) {
			t.Errorf("%d, shown %q, echoes: %v", got, s.text(), s.echoes(t))
		}
		within.Until(t, "it is shown", func() bool { return strings.HasSuffix(s.text(), "6\r\n") })
		if strings.Contains(s.text(), "s3cret") || !strings.HasPrefix(s.text(), "Password: ") {
			t.Errorf("shown %q", s.text())
		}
	})
	t.Run("another terminal types the password", func(t *testing.T) {
		s, other := newScreen(t), newScreen(t)
		code := start(t.Context(), s, "run", "--detach", "-c", "import getpass\nprint(len(getpass.getpass('Enter: ')))")
		if got := <-code; got != 0 {
			t.Fatal(got, s.text())
		}
		awaitPrompt(t, getenv)
		code = start(t.Context(), other, "input")
		other.awaitHidden(t)
		fmt.Fprintln(other.master, "s3cret")
		if got := <-code; got != 0 || strings.Contains(other.text(), "s3cret") || !other.echoes(t) {
			t.Errorf("%d, shown %q, echoes: %v", got, other.text(), other.echoes(t))
		}
	})
	t.Run("an interrupt at a password restores the terminal", func(t *testing.T) {
		s := newScreen(t)
		ctx, interrupt := context.WithCancel(t.Context())
		code := start(ctx, s, "run", "-c", "import getpass\ngetpass.getpass('Enter: ')")
		s.awaitHidden(t)
		interrupt()
		if got := <-code; got != 1 || !s.echoes(t) {
			t.Errorf("%d, shown %q, echoes: %v", got, s.text(), s.echoes(t))
		}
		within.Until(t, "it is shown", func() bool { return strings.Contains(s.text(), "KeyboardInterrupt") })
		fmt.Fprintln(s.master) // ends the read that the interrupt left running
	})
	t.Run("the progress of a notebook is one line, and it asks for input", func(t *testing.T) {
		s, path := newScreen(t), filepath.Join(t.TempDir(), "a.ipynb")
		source := "import getpass, time\\nprint('one\\x1b[2J', flush=True)\\ntime.sleep(0.3)\\nkey = getpass.getpass('Key: ')\\nassert key == 's3cret'"
		text := `{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [], "source": "` + strings.ReplaceAll(source, `\x1b`, `\\x1b`) + `"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code := start(t.Context(), s, "nb", "run", path)
		s.awaitHidden(t)
		fmt.Fprintln(s.master, "s3cret")
		if got := <-code; got != 0 || !s.echoes(t) {
			t.Errorf("%d, shown %q", got, s.text())
		}
		within.Until(t, "it is shown", func() bool { return strings.Contains(s.text(), "succeeded: 1 cell; 1 succeeded in ") })
		if shown := s.text(); !strings.Contains(shown, "\r\x1b[K0 of 1 cells done; cell 0: import getpass, time | one") || !strings.Contains(shown, "\r\x1b[KKey: ") || strings.Contains(shown, "\x1b[2J") {
			t.Errorf("shown %q", shown)
		}
	})
}

// awaitPrompt waits until the newest run asks for something.
func awaitPrompt(t *testing.T, getenv func(string) string) {
	t.Helper()
	within.Until(t, "it is shown", func() bool {
		var out bytes.Buffer
		code := run(t.Context(), []string{cli.CommandName, "logs", "--json"}, getenv, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return code == 0 && strings.Contains(out.String(), `"input_request"`)
	})
}

func TestASecondInterruptLeavesTheRunToBeReadLater(t *testing.T) {
	tier.Long(t)
	configtest.Home(t)
	settings := startExecutor(t)
	dir := t.TempDir()
	relay := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), cli.CommandName, args...) // this test program; see TestMain
		cmd.Env = append(os.Environ(), "COLAB_URL="+settings["COLAB_URL"], "COLAB_SECRET="+settings["COLAB_SECRET"])
		cmd.WaitDelay = 5 * time.Second
		return cmd
	}
	var errs harness.Output
	file := func(name string) string { return filepath.Join(dir, name) }
	cmd := relay("run", "-c", fmt.Sprintf(`
import os, time
os.chdir(%q)
try:
    open('started', 'w')
    time.sleep(60)
except KeyboardInterrupt:
    open('interrupted', 'w')
    while not os.path.exists('go'):
        time.sleep(0.01)
    print('ended')`, dir))
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(file(name)); return err == nil }
	}
	within.Until(t, "the program has written it", exists("started"))
	cmd.Process.Signal(syscall.SIGINT)
	within.Until(t, "the program has written it", exists("interrupted"))
	cmd.Process.Signal(syscall.SIGINT)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitRunning {
		t.Errorf("it ended with %v and printed %q", err, errs.String())
	}
	back := regexp.MustCompile(`to come back: colab-relay (attach \S+)\n`).FindStringSubmatch(errs.String())
	if back == nil {
		t.Fatalf("%q", errs.String())
	}
	again := relay(strings.Fields(back[1])...)
	if err := os.WriteFile(file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := again.Output(); !errors.As(err, &exit) || exit.ExitCode() != 1 || string(out) != "ended\n" { // it was interrupted
		t.Errorf("%v %q", err, out)
	}
}
