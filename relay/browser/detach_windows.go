package browser

import (
	"os/exec"
	"syscall"
)

// detach keeps a Ctrl-C in the relay's console from the program.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
