package kernel

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// oomSources are the files that count processes killed because memory ran out: in the
// cgroup (v2) and on the machine.
var oomSources = []string{"/sys/fs/cgroup/memory.events", "/proc/vmstat"}

// oomCounter holds the counts of oomSources at its start.
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

// rose reports whether the system has killed a process because memory ran out.
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
