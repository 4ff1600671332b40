//go:build !linux && !darwin && !windows

package transfer

import (
	"errors"
	"syscall"
)

// freeBytes is unknown on this system.
func freeBytes(string) (int64, bool) { return 0, false }

// DiskFull reports whether err means that the disk is full.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || says(err, syscall.ENOSPC)
}
