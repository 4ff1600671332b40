package execution

import (
	"os"
	"syscall"
)

// deleted reports whether an open file has no name any more: `git clean -fdx` in the
// workdir takes the state dir away under a running executor. What is written to such
// a file is gone with its handle.
func deleted(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
