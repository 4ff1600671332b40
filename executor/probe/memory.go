package probe

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/mem"
)

// limitsAge is how long the control groups that have a limit are remembered. Looking for
// them takes five system calls for each level.
const limitsAge = time.Second

// Mem is the memory that executor and kernel share, in bytes.
type Mem struct {
	Total, Used, Available uint64
}

// UsedPct is the used part of the memory in percent, or 0 if the total is unknown.
func (m Mem) UsedPct() float64 {
	if m.Total == 0 {
		return 0
	}
	return Round(100*float64(m.Used)/float64(m.Total), 1)
}

// Memory is the memory of the machine, or of the control group of this process if it has a
// limit. Page cache that can be reclaimed counts as available. Each run is measured, so
// that on Linux without such limits this takes one system call.
func Memory() (Mem, error) { return ownMeter().memory(time.Now()) }

var ownMeter = sync.OnceValue(func() *meter { return &meter{root: os.DirFS("/"), meminfo: openMeminfo()} })

// meter measures memory again and again.
type meter struct {
	root    fs.FS
	meminfo int // file descriptor of /proc/meminfo; -1 if there is none

	mu      sync.Mutex
	limited levels
	checked time.Time // when limited was determined
}

// openMeminfo opens Linux's figures of the machine. Not by os.Open, which would register
// the file with the runtime's poller: a thread would wake up for nothing.
func openMeminfo() int {
	fd, err := syscall.Open("/proc/meminfo", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func (m *meter) memory(now time.Time) (Mem, error) {
	total, available, err := m.machine()
	if err != nil {
		return Mem{}, fmt.Errorf("reading the machine's memory: %w", err)
	}
	machine := Mem{Total: total, Used: total - min(total, available), Available: available}
	return machine.within(m.levels(now).read(m.root)), nil
}

// machine is the memory of the machine, without regard to control groups.
func (m *meter) machine() (total, available uint64, err error) {
	text := make([]byte, 4<<10)
	if n, err := syscall.Pread(m.meminfo, text, 0); err == nil {
		total, available = kilobytes(text[:n], "MemTotal:"), kilobytes(text[:n], "MemAvailable:")
	}
	if total > 0 && available > 0 {
		return total, available, nil
	}
	v, err := mem.VirtualMemory()
	if err != nil {
		return 0, 0, err
	}
	return v.Total, v.Available, nil
}

// kilobytes is a field of /proc/meminfo in bytes, or 0 if there is none.
func kilobytes(meminfo []byte, field string) uint64 {
	_, rest, _ := bytes.Cut(meminfo, []byte(field))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 54)
	if err != nil {
		return 0
	}
	return n << 10
}

// levels are the control groups with a limit, determined at most limitsAge ago.
func (m *meter) levels(now time.Time) levels {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.checked) > limitsAge {
		m.limited, m.checked = limitedLevels(m.root), now
	}
	return m.limited
}

// within applies the limits of groups to m. The tightest one counts.
func (m Mem) within(groups []cgroup) Mem {
	for _, g := range groups {
		if g.limit >= m.Total && g.limit-min(g.limit, g.used) >= m.Available {
			continue
		}
		available := min(m.Available, g.limit-min(g.limit, g.used))
		m = Mem{Total: min(m.Total, g.limit), Available: available}
		m.Used = m.Total - min(m.Total, available)
	}
	return m
}
