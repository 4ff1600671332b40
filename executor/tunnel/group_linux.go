package tunnel

import "syscall"

// ownGroup keeps signals of the terminal away, which the notebook's stop button
// sends to the whole group, and has Linux kill the program when the executor
// dies, even by SIGKILL: it would keep the public URL.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
