//go:build linux || darwin

package diskspace

import (
	"math"
	"syscall"
)

// Of returns the space of the file system of dir; ok is false if it is unknown.
func Of(dir string) (s Space, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Blocks == 0 {
		return Space{}, false // some network file systems report no size
	}
	bytes := func(blocks uint64) int64 {
		return int64(min(float64(blocks)*float64(fs.Bsize), math.MaxInt64/2))
	}
	return Space{Free: bytes(fs.Bavail), Size: bytes(fs.Blocks)}, true
}
