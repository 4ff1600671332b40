package probe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/disk"
	"github.com/shirou/gopsutil/v3/load"
	"github.com/shirou/gopsutil/v3/mem"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
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

// cgroup is the memory of one control group, in bytes.
type cgroup struct {
	limit uint64
	used  uint64 // without the page cache that can be reclaimed
}

// version is where one version of control groups keeps its figures.
type version struct {
	mount, limit, used, inactive string
}

var (
	v1 = version{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	v2 = version{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
)

// levels are control groups of one version, the innermost first.
type levels struct {
	version
	dirs []string
}

// read reads the groups that still exist and have a limit.
func (l levels) read(root fs.FS) (found []cgroup) {
	for _, dir := range l.dirs {
		if g, ok := l.version.read(root, dir); ok {
			found = append(found, g)
		}
	}
	return found
}

// limitedLevels are the control groups of this process that have a limit.
//
// In a container, /proc/self/cgroup may contain a path of the host that does not exist
// here. Then the mounted directory is the container's own group.
func limitedLevels(root fs.FS) levels {
	v, dir := ownCgroup(root)
	found := levels{version: v}
	for {
		level := path.Join(v.mount, dir)
		if _, ok := v.read(root, level); ok {
			found.dirs = append(found.dirs, level)
		}
		if dir == "." || dir == "/" || dir == "" {
			return found
		}
		dir = path.Dir(dir)
	}
}

// ownCgroup finds the memory group of this process. It is of version 1 if that has a memory
// controller, and of version 2 otherwise.
func ownCgroup(root fs.FS) (v version, dir string) {
	b, _ := fs.ReadFile(root, "proc/self/cgroup")
	v, dir = v2, "."
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		own := path.Clean(strings.TrimPrefix(fields[2], "/"))
		if strings.HasPrefix(own, "..") { // a group outside our view of them
			own = "."
		}
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			return v1, own
		}
		if fields[0] == "0" && fields[1] == "" {
			dir = own
		}
	}
	return v, dir
}

// read returns ok if the group exists and has a limit. Without a limit, version 1 has a
// number near 2^63 and version 2 the word max.
func (v version) read(root fs.FS, dir string) (g cgroup, ok bool) {
	const none = 1 << 62
	if g.limit, ok = number(root, path.Join(dir, v.limit)); !ok || g.limit >= none {
		return cgroup{}, false
	}
	if g.used, ok = number(root, path.Join(dir, v.used)); !ok {
		return cgroup{}, false
	}
	stat, _ := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	g.used -= min(g.used, statField(stat, v.inactive))
	return g, true
}

func number(root fs.FS, name string) (uint64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// statField is one figure of a memory.stat file, or 0 if the file does not have it.
func statField(stat []byte, name string) uint64 {
	lines := bufio.NewScanner(bytes.NewReader(stat))
	for lines.Scan() {
		if key, value, _ := strings.Cut(lines.Text(), " "); key == name {
			n, _ := strconv.ParseUint(value, 10, 64)
			return n
		}
	}
	return 0
}

const (
	driveMount = "/content/drive/MyDrive"
	diskLimit  = 2 * time.Second // a Drive whose mount hangs never answers
)

// storage describes the file systems of the working directory, of temporary files and of a
// mounted Drive.
func (p *Prober) storage(ctx context.Context) []contract.Disk {
	paths := []string{p.cfg.WorkDir, os.TempDir(), driveMount}
	disks := []contract.Disk{}
	for i, path := range paths {
		if path == "" || slices.Contains(paths[:i], path) {
			continue
		}
		if d, ok := p.disk(ctx, path); ok {
			disks = append(disks, d)
		}
	}
	return disks
}

// disk runs at most one query for each path. If one hangs, later calls join it.
func (p *Prober) disk(ctx context.Context, path string) (contract.Disk, bool) {
	answer := p.usage.DoChan(path, func() (any, error) { return disk.Usage(path) })
	limit := time.NewTimer(diskLimit)
	defer limit.Stop()
	select {
	case r := <-answer:
		if r.Err != nil {
			return contract.Disk{}, false
		}
		u := r.Val.(*disk.UsageStat)
		return contract.Disk{Path: path, TotalGB: InGB(u.Total), FreeGB: InGB(u.Free), UsedPct: Round(u.UsedPercent, 1)}, true
	case <-limit.C:
	case <-ctx.Done():
	}
	return contract.Disk{}, false
}

func compute(ctx context.Context) contract.Compute {
	var out contract.Compute
	out.CPUCount, _ = cpu.CountsWithContext(ctx, true)
	if cpus, err := cpu.InfoWithContext(ctx); err == nil && len(cpus) > 0 {
		out.CPUModel = cpus[0].ModelName
	}
	if average, err := load.AvgWithContext(ctx); err == nil {
		out.Load1 = Round(average.Load1, 2)
	}
	if m, err := Memory(); err == nil {
		out.MemoryTotalGB, out.MemoryAvailableGB, out.MemoryUsedPct = InGB(m.Total), InGB(m.Available), m.UsedPct()
	}
	return out
}

const (
	// nvidiaLimit is how long nvidia-smi may run. With a broken driver it hangs for minutes.
	nvidiaLimit = time.Second
	maxGPUs     = 64
)

// gpuFields are the fields that nvidia-smi prints, in the order that parseGPUs expects.
const gpuFields = "index,name,memory.used,memory.total,utilization.gpu,utilization.memory"

func gpu(ctx context.Context, as *account.User, root fs.FS) contract.GPU {
	ctx, cancel := context.WithTimeout(ctx, nvidiaLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+gpuFields, "--format=csv,nounits,noheader")
	cmd.WaitDelay = nvidiaLimit
	out, err := as.Output(cmd) // PATH may lead to a program of that user
	if err != nil {
		return contract.GPU{Devices: []contract.GPUDevice{}}
	}
	devices := parseGPUs(out)
	driver, _ := fs.ReadFile(root, "proc/driver/nvidia/version")
	return contract.GPU{Available: len(devices) > 0, Driver: driverVersion(driver), Devices: devices}
}

// parseGPUs reads nvidia-smi's table, which has a line for each GPU. A name may contain
// commas. A field that is not a number, such as [N/A], becomes null. A line with too few
// fields is a message and is skipped.
func parseGPUs(table []byte) []contract.GPUDevice {
	devices := []contract.GPUDevice{}
	for line := range bytes.Lines(table) {
		fields := strings.Split(strings.ToValidUTF8(string(line), "�"), ",")
		n := len(fields)
		if n < 6 || len(devices) == maxGPUs {
			continue
		}
		d := contract.GPUDevice{
			Name:           strings.TrimSpace(strings.Join(fields[1:n-4], ",")),
			MemoryUsedMB:   parseFloat(fields[n-4]),
			MemoryTotalMB:  parseFloat(fields[n-3]),
			UtilizationPct: parseFloat(fields[n-2]),
		}
		if index, err := strconv.Atoi(strings.TrimSpace(fields[0])); err == nil {
			d.Index = &index
		}
		devices = append(devices, d)
	}
	return devices
}

// parseFloat is nil unless s is a finite number: JSON has no NaN.
func parseFloat(s string) *float64 {
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// driverVersion is the first version number on the first line of
// /proc/driver/nvidia/version, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …".
func driverVersion(file []byte) string {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	for _, word := range strings.Fields(string(first)) {
		if strings.Trim(word, "0123456789.") == "" && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// tpu checks for device files and Colab's environment variable. It does not import jax,
// which would reserve the TPU and keep the user's code from using it.
func tpu(getenv func(string) string, root fs.FS) contract.TPU {
	devices := []string{}
	for _, pattern := range []string{"dev/accel*", "dev/vfio/*"} {
		found, _ := fs.Glob(root, pattern)
		for _, device := range found {
			if path.Base(device) != "vfio" { // the control device, which also exists without a TPU
				devices = append(devices, "/"+device)
			}
		}
	}
	return contract.TPU{Available: len(devices) > 0 || getenv("COLAB_TPU_1VM") != "", Devices: devices}
}
