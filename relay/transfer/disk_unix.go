//go:build linux || darwin

package transfer

import (
	"errors"
	"math"
	"syscall"
)

// freeBytes is what the user may still write to the file system of dir.
func freeBytes(dir string) (int64, bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Blocks == 0 {
		return 0, false // some network file systems know no size
	}
	free := float64(fs.Bavail) * float64(fs.Bsize)
	return int64(min(free, math.MaxInt64/2)), true
}

// isDiskFull reports whether err means that no more fits: no space, over quota, or
// over what the file system or a limit allows one file.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
