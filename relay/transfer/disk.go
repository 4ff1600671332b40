package transfer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// diskFull are the errors, by system, that mean no space, a quota reached, or a file at the size limit
// of the file system or the process.
var diskFull = map[string][]syscall.Errno{
	"linux":   {28, 122, 27}, // ENOSPC, EDQUOT, EFBIG
	"darwin":  {28, 69, 27},
	"windows": {112, 39, 1295, 223}, // ERROR_DISK_FULL, HANDLE_DISK_FULL, DISK_QUOTA_EXCEEDED, FILE_TOO_LARGE
}

// DiskFull reports whether err means that the disk is full. The package that replaces files
// atomically passes on only the text of its errors, at the end of its own.
func DiskFull(err error) bool {
	return err != nil && slices.ContainsFunc(diskFull[runtime.GOOS], func(full syscall.Errno) bool {
		return errors.Is(err, full) || strings.HasSuffix(err.Error(), full.Error())
	})
}

// markDiskFull adds ErrLocalDisk to an error that means a full disk.
func markDiskFull(err error) error {
	if DiskFull(err) {
		return fmt.Errorf("%w: %w", ErrLocalDisk, err)
	}
	return err
}
