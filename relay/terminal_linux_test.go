package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/e2e/fakevm"
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
