//go:build unix

package notebook

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and group of another one, as far as this user may.
func keepOwner(file *os.File, of fs.FileInfo) {
	if stat, ok := of.Sys().(*syscall.Stat_t); ok {
		_ = file.Chown(int(stat.Uid), -1)
		_ = file.Chown(-1, int(stat.Gid))
	}
}
