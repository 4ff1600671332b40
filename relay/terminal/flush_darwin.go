package terminal

import "golang.org/x/sys/unix"

// flushInput drops what was typed and not read yet.
func flushInput(fd int) { _ = unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCIFLUSH) }
