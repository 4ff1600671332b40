package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is a screen for a program that wants a person.
type terminal struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	screen []byte // the end of what the program drew
}

// maxScreen bounds what is kept of a program's drawing, in bytes.
const maxScreen = 64 << 10

// startInTerminal starts a command, which has a session of its own, in a new terminal.
func startInTerminal(cmd *exec.Cmd) (*terminal, error) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	side, err := otherSide(keyboard)
	if err != nil {
		return nil, errors.Join(err, keyboard.Close())
	}
	defer side.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr.Setctty = true
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, keyboard.Close())
	}
	t := &terminal{cmd: cmd, ended: make(chan struct{})}
	go t.watch(keyboard)
	return t, nil
}

// otherSide returns the side of a new terminal that a program gets.
func otherSide(keyboard *os.File) (*os.File, error) {
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlocking the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("naming the terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 180}); err != nil {
		return nil, fmt.Errorf("sizing the terminal: %w", err)
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
}

// watch keeps what the program draws until its end.
func (t *terminal) watch(keyboard *os.File) {
	defer close(t.ended)
	defer keyboard.Close()
	part := make([]byte, 4096)
	for {
		n, err := keyboard.Read(part)
		t.mu.Lock()
		t.screen = append(t.screen, part[:n]...)
		if over := len(t.screen) - maxScreen; over > 0 {
			t.screen = t.screen[over:]
		}
		t.mu.Unlock()
		if err != nil { // nobody holds the other side any longer
			return
		}
	}
}

// close kills the program's session and returns what it drew last.
func (t *terminal) close() string {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	_ = t.cmd.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.screen)
}
