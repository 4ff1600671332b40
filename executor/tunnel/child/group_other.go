//go:build !linux

package child

import "syscall"

// ownGroup keeps the terminal's signals away from the program. Only Linux can
// also kill the program when the executor dies.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
