package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"colabrelay/shared/stacks"
)

// machine is where and when the table was measured.
type machine struct {
	cpu, kernel, python, commit, load string
	began                             time.Time
	took                              time.Duration
}

// describe reads what it can; the rest is "unknown".
func describe(ctx context.Context, b *bench) machine {
	const versions = "import platform, ipykernel; print('Python', platform.python_version() + ', ipykernel', ipykernel.__version__)"
	return machine{
		cpu:    output(ctx, "sed", "-n", "s/^model name.*: //p;T;q", "/proc/cpuinfo"),
		kernel: output(ctx, "uname", "-sr"),
		python: output(ctx, b.python, "-c", versions),
		commit: output(ctx, "git", "-C", stacks.Root(), "describe", "--always", "--dirty"),
		load:   output(ctx, "cut", "-d ", "-f-3", "/proc/loadavg"),
		began:  time.Now().UTC(),
	}
}

func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// writeReport writes the page that docs/BENCH.md keeps.
func writeReport(w io.Writer, m machine, sections []section) {
	fmt.Fprintf(w, `# Measurements

`+"`make bench BENCH_KEEP=1`"+` wrote this page in %.0f s on %s, at commit %s.

- Machine: %s, %d cores, %s; load average before: %s. If others used the machine, measure again.
- Go %s; the kernel's %s.

`, m.took.Seconds(), m.began.Format("2006-01-02 15:04 MST"), m.commit,
		m.cpu, runtime.NumCPU(), m.kernel, m.load, strings.TrimPrefix(runtime.Version(), "go"), m.python)
	writeTable(w, sections)
	fmt.Fprint(w, howMeasured)
}
