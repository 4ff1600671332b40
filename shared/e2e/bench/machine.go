package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"colabrelay/shared/stacks"
)

// machine is where and when the table was measured.
type machine struct {
	cpu, kernel, memory  string
	python, bridge, disk string
	commit, load         string
	began                time.Time
	took                 time.Duration
}

// describe reads what it can; the rest is "unknown".
func describe(ctx context.Context, b *bench) machine {
	return machine{
		cpu:    field("/proc/cpuinfo", "model name"),
		memory: memorySize(),
		kernel: output(ctx, "uname", "-sr"),
		python: output(ctx, b.python, "-c", versions("ipykernel")),
		bridge: bridgeVersions(ctx, b),
		commit: output(ctx, "git", "-C", stacks.Root(), "describe", "--always", "--dirty"),
		load:   loadAverage(),
		disk:   "transfers on " + fileSystem(ctx, b.disk) + ", everything else on " + fileSystem(ctx, b.memory),
		began:  time.Now().UTC(),
	}
}

func bridgeVersions(ctx context.Context, b *bench) string {
	if b.bridge == "" {
		return "left out, because pip reached no index"
	}
	return output(ctx, b.bridge, "-c", versions("flask", "mcp", "requests"))
}

// versions is Python code that prints the version of Python and of packages.
func versions(packages ...string) string {
	code := "import platform, importlib.metadata as m; print('Python ' + platform.python_version()"
	for _, name := range packages {
		code += fmt.Sprintf(", '%s ' + m.version('%s')", name, name)
	}
	return code + ", sep=', ')"
}

func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// field returns the value of the first line of a file in /proc that begins with name.
func field(path, name string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memorySize() string {
	var kib float64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &kib); err != nil {
		return "unknown size"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	all := strings.Fields(string(data))
	if len(all) < 3 {
		return "unknown"
	}
	return strings.Join(all[:3], ", ")
}

// fileSystem names the type of a folder's file system.
func fileSystem(ctx context.Context, dir string) string {
	lines := strings.Fields(output(ctx, "df", "--output=fstype", dir))
	return lines[len(lines)-1]
}

// busy returns a warning if other programs used the machine before, more than the build of
// the programs does. load is that of loadAverage.
func busy(load string, cores int) string {
	var before float64
	if _, err := fmt.Sscanf(load, "%f,", &before); err != nil || before <= float64(cores)/2 {
		return ""
	}
	return "\n**The machine was busy with other work.** This slows programs that use several cores more than others. Measure again on a quiet machine before you compare ratios.\n"
}

// writeReport writes the page that docs/BENCH.md keeps.
func writeReport(w io.Writer, m machine, sections []section) {
	fmt.Fprintf(w, `# Measurements

`+"`make bench BENCH_KEEP=1`"+` wrote this page in %.0f s on %s, at commit %s.

- Machine: %s, %d cores, %s of memory, %s; load average before: %s.
- Go %s; the kernel's %s; the old-style bridge's %s.
- Files: %s.
%s
`, m.took.Seconds(), m.began.Format("2006-01-02 15:04 MST"), m.commit,
		m.cpu, runtime.NumCPU(), m.memory, m.kernel, m.load,
		strings.TrimPrefix(runtime.Version(), "go"), m.python, m.bridge, m.disk, busy(m.load, runtime.NumCPU()))
	writeTable(w, sections)
	fmt.Fprint(w, howMeasured)
}
