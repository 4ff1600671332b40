package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
)

// systemPath is PATH of every program that is not ours.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

// command returns the command of a host: in a session and with a home and an environment of its
// own, without the variables of the person who runs it.
func (s setting) command(ctx context.Context, args, env []string) (*exec.Cmd, error) {
	program := []string{s.program}
	if strings.HasSuffix(s.program, "js") {
		node, err := exec.LookPath("node")
		if err != nil {
			return nil, fmt.Errorf("install node 20 or newer: %w", err)
		}
		program = []string{node, s.program}
	}
	temp := filepath.Join(s.home, "tmp")
	for _, dir := range []string{s.work, temp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], args...)...)
	cmd.Dir = s.work
	cmd.Env = append([]string{"PATH=" + systemPath, "HOME=" + s.home, "TMPDIR=" + temp, "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/bash"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

// output runs a command and returns what it printed. Nothing of its session is left.
func output(cmd *exec.Cmd) (string, error) {
	var printed harness.Output
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return printed.String(), err
}
