package harness

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// CPUOf returns the processor time that a process has used. Unlike the time that passed, it
// hardly depends on what else the machine does.
func CPUOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may contain spaces
	var user, system int64
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has too few fields: %q", pid, stat)
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	const tick = time.Second / 100 // USER_HZ, the same on all of Linux's platforms
	return time.Duration(user+system) * tick, nil
}
