//go:build !linux && !darwin && !windows

package transfer

import (
	"errors"
	"syscall"
)

// freeBytes is not known here.
func freeBytes(string) (int64, bool) { return 0, false }

// isDiskFull reports whether err means that no more fits.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG)
}
