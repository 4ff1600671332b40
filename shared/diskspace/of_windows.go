package diskspace

import (
	"math"
	"syscall"
	"unsafe"
)

var getDiskFreeSpace = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")

// Of returns the space of the volume of dir; ok is false if it is unknown.
func Of(dir string) (s Space, ok bool) {
	name, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return Space{}, false
	}
	var free, size uint64
	done, _, _ := getDiskFreeSpace.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&size)), 0)
	return Space{Free: int64(min(free, math.MaxInt64)), Size: int64(min(size, math.MaxInt64))}, done != 0
}
