//go:build unix

package browser

import (
	"os/exec"
	"syscall"
)

// detach gives a program a session of its own: a Ctrl-C in the relay's terminal, or a host
// that ends the relay's process group, would end the person's browser.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
