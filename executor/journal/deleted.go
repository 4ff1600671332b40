package journal

import (
	"os"
	"syscall"
)

// deleted reports whether an open file has been deleted: `git clean -fdx` in the
// workdir removes the state directory of a running executor. What is written to such
// a file is lost when it is closed.
func deleted(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
