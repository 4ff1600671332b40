//go:build !linux

package tunnel

import "syscall"

// ownGroup keeps signals of the terminal away. Only Linux can also tie the
// program's life to the executor's.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
