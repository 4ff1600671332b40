//go:build linux || darwin

package transfer

import (
	"errors"
	"syscall"
)

// DiskFull reports whether err means no space, a quota reached, or a file at the size
// limit of the file system or the process.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) ||
		says(err, syscall.ENOSPC, syscall.EDQUOT)
}
