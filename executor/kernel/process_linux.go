package kernel

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownSession makes the process the leader of a new session and has Linux kill it when
// the executor dies, even by SIGKILL. An orphan would run code that is not recorded, and
// keep the GPU's memory.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func signalName(sig syscall.Signal) string { return unix.SignalName(sig) }
