package transfer

import (
	"errors"
	"math"
	"syscall"
	"unsafe"
)

var getDiskFreeSpace = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")

// freeBytes is what the user may still write to the volume of dir.
func freeBytes(dir string) (int64, bool) {
	name, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	ok, _, _ := getDiskFreeSpace.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&free)), 0, 0)
	return int64(min(free, math.MaxInt64)), ok != 0
}

// What Windows says when no more fits.
const (
	errorHandleDiskFull = syscall.Errno(39)
	errorDiskFull       = syscall.Errno(112)
	errorFileTooLarge   = syscall.Errno(223)
	errorDiskQuota      = syscall.Errno(1295)
)

// isDiskFull reports whether err means that no more fits: no space, over quota, or
// over what the file system allows one file.
func isDiskFull(err error) bool {
	return errors.Is(err, errorDiskFull) || errors.Is(err, errorHandleDiskFull) ||
		errors.Is(err, errorFileTooLarge) || errors.Is(err, errorDiskQuota)
}
