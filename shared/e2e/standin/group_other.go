//go:build !unix

package standin

import (
	"os/exec"
)

// leadGroup does nothing: this system has no process groups.
func leadGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
