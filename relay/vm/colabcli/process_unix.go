//go:build !windows

package colabcli

import (
	"os"
	"syscall"
)

// ownSession keeps the program from the relay's terminal, and from the signals of its keys.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// killGroup ends a process of ownSession and those that it started.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// tryLock locks an open file until all copies of its descriptor are closed, also those in
// other processes. It returns false if it is locked already.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
