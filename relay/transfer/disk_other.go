//go:build !linux && !darwin && !windows

package transfer

import (
	"errors"
	"syscall"
)

// DiskFull reports whether err means that the disk is full.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || says(err, syscall.ENOSPC)
}
