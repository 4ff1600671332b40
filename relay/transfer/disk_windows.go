package transfer

import (
	"errors"
	"syscall"
)

// Windows error codes for a full disk.
const (
	errorHandleDiskFull = syscall.Errno(39)
	errorDiskFull       = syscall.Errno(112)
	errorFileTooLarge   = syscall.Errno(223)
	errorDiskQuota      = syscall.Errno(1295)
)

// DiskFull reports whether err means no space, a quota reached, or a file at the size
// limit of the file system.
func DiskFull(err error) bool {
	return errors.Is(err, errorDiskFull) || errors.Is(err, errorHandleDiskFull) ||
		errors.Is(err, errorFileTooLarge) || errors.Is(err, errorDiskQuota) || says(err, errorDiskFull, errorHandleDiskFull)
}
