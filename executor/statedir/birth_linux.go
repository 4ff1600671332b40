package statedir

import (
	"time"

	"golang.org/x/sys/unix"
)

// birth returns when a folder was created, or zero if the file system does not record it.
// A copy is a new folder; a renamed one keeps its time.
func birth(path string) time.Time {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &s)
	if err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)).UTC()
}
