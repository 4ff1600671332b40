package harness

import (
	"fmt"
	"os"
	"strings"
)

// Memory is a process's resident memory in MiB: now, and the most since its start.
type Memory struct{ Now, Peak float64 }

// MemoryOf reads the resident memory of a process from /proc.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for field, to := range map[string]*float64{"VmRSS:": &m.Now, "VmHWM:": &m.Peak} {
		_, rest, _ := strings.Cut(string(status), field)
		var kib float64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			return Memory{}, fmt.Errorf("reading %s of process %d: %w", field, pid, err)
		}
		*to = kib / 1024
	}
	return m, nil
}
