package transfer

import (
	"errors"
	"math"
	"syscall"
	"unsafe"
)

var getDiskFreeSpace = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")

// freeBytes returns how many bytes the user can still write to the volume of dir.
func freeBytes(dir string) (int64, bool) {
	name, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	ok, _, _ := getDiskFreeSpace.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&free)), 0, 0)
	return int64(min(free, math.MaxInt64)), ok != 0
}

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
