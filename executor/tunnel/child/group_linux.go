package child

import "syscall"

// ownGroup keeps the terminal's signals away from the program: the notebook's
// stop button sends them to the whole group. It also makes Linux kill the program
// when the executor dies, even by SIGKILL; the program would keep the public URL.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
