//go:build !linux

package files

import "syscall"

// times are when a file's bytes, and when anything of it, last changed, in nanoseconds.
func times(st *syscall.Stat_t) [2]int64 { return [2]int64{st.Mtimespec.Nano(), st.Ctimespec.Nano()} }
