//go:build !unix

package standin

import (
	"os"
	"os/exec"
)

// leadGroup does nothing: this system has no process groups.
func leadGroup(*exec.Cmd) {}

func interruptGroup(cmd *exec.Cmd) error { return cmd.Process.Signal(os.Interrupt) }

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
