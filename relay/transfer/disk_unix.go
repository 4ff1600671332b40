//go:build linux || darwin

package transfer

import (
	"errors"
	"math"
	"syscall"
)

// freeBytes returns how many bytes the user can still write to the file system of dir.
func freeBytes(dir string) (int64, bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Blocks == 0 {
		return 0, false // some network file systems report no size
	}
	free := float64(fs.Bavail) * float64(fs.Bsize)
	return int64(min(free, math.MaxInt64/2)), true
}

// DiskFull reports whether err means no space, a quota reached, or a file at the size
// limit of the file system or the process.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) ||
		says(err, syscall.ENOSPC, syscall.EDQUOT)
}
