package files

import "syscall"

// times are a file's modification and status change times, in nanoseconds.
func times(st *syscall.Stat_t) [2]int64 { return [2]int64{st.Mtim.Nano(), st.Ctim.Nano()} }
