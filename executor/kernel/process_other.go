//go:build !linux

package kernel

import "syscall"

// ownSession makes the process the leader of a new session. Only Linux can also end it
// with the executor; elsewhere ipykernel itself notices that its parent is gone.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

func signalName(sig syscall.Signal) string { return sig.String() }
