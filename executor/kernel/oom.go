package kernel

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// oomSources count the processes killed for want of memory: the cgroup's own
// (v2), and the whole machine's.
var oomSources = []string{"/sys/fs/cgroup/memory.events", "/proc/vmstat"}

// oomCounter tells whether the system killed for want of memory since it was made.
type oomCounter map[string]uint64

func newOOMCounter() oomCounter {
	c := oomCounter{}
	for _, path := range oomSources {
		if n, ok := oomKills(path); ok {
			c[path] = n
		}
	}
	return c
}

func (c oomCounter) rose() bool {
	for path, before := range c {
		if now, ok := oomKills(path); ok && now > before {
			return true
		}
	}
	return false
}

func oomKills(path string) (uint64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "oom_kill "); found {
			n, err := strconv.ParseUint(rest, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
