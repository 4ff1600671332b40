//go:build !linux

package kernel

import "syscall"

// ownSession makes the process leader of a new session. Only Linux can also tie
// its life to the executor's; elsewhere ipykernel's own watch of its parent must do.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

func signalName(sig syscall.Signal) string { return sig.String() }
