package main

import (
	"cmp"
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

// howMeasured explains the table.
const howMeasured = `
## How it is measured

Speeds are medians. A ratio compares medians of ways that were measured in turn, in a random order, in the same run. Compare ratios between machines and days, not times. p99 is the largest sample where n is below 100. A missed target is marked, and nothing fails.

- **The bare kernel** is the executor's own Jupyter client, connected to the kernel directly.
- **The old-style bridge** is what this project replaces: a Flask application (development server, threads) that executes code in its own process with ` + "`exec` and `eval`" + `, called by an MCP server in Python (FastMCP of mcp[cli]) with ` + "`requests`" + `, a new connection each call. It has no kernel, no queue, no deadline, no log, no signature. The same MCP client drives it and the relay.
- **A notebook** runs 1,000 cells of ` + "`1+1`" + `; the time of a cell is that of the whole divided by 1,000. The executor runs them by itself, as one job, whose steps a ticket of relay/jobs reads while it runs.
- **Distance** is a proxy that delays both directions by half the round trip. A new connection costs one more round trip, as TCP's handshake does; TLS would cost another.
- **Prints**: the code prints its clock, and the readers compare it with theirs. Without ` + "`flush=True`" + `, ipykernel sends output every 0.2 s.
- **Transfers** move one file of random bytes between two folders on one disk. Plain net/http copies it with io.Copy and verifies nothing. The executor's and the relay's SHA-256 of the whole are in the time.
- **The hour** is 20 quick calls, a silent run and a printing run of ten minutes each, five calls that list or inspect, and a download of 10 MB. The runs are followed for 90 s and multiplied.
`

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

// row is a line of the table. Empty fields are left out.
type row struct {
	what    string
	n       int
	figure  string // the median of a latency, or another figure
	p99     string
	ratio   float64
	against string // what the ratio refers to
	target  target
	note    string // counts
}

// section is a topic's part of the table.
type section struct {
	title string
	rows  []row
	err   error
}

// latency returns a row with the times of s.
func latency(what string, s samples) row {
	return row{what: what, n: len(s), figure: short(s.median()), p99: short(s.quantile(0.99))}
}

// comparedTo adds the ratio of the medians. A base of 0 samples adds none.
func (r row) comparedTo(name string, s, base samples) row {
	if len(base) > 0 {
		r.ratio, r.against = s.over(base), name
	}
	return r
}

// target says what a figure should be and whether it is.
type target struct {
	text string
	met  bool
}

func atMost(got, limit float64, unit string) target {
	return target{fmt.Sprintf("at most %g%s", limit, unit), got <= limit}
}

func atLeast(got, limit float64, unit string) target {
	return target{fmt.Sprintf("at least %g%s", limit, unit), got >= limit}
}

// within is atMost for times.
func within(got, limit time.Duration) target {
	return target{"at most " + short(limit), got <= limit}
}

func ratioAtMost(r row, limit float64) row {
	r.target = atMost(r.ratio, limit, "×")
	return r
}

func ratioAtLeast(r row, limit float64) row {
	r.target = atLeast(r.ratio, limit, "×")
	return r
}

func (t target) verdict() string {
	switch {
	case t.text == "":
		return ""
	case t.met:
		return "met"
	}
	return "**missed**"
}

// short writes a time with three digits.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.3g ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.3g s", ms/1000)
}

// writeTable writes Markdown.
func writeTable(w io.Writer, sections []section) {
	fmt.Fprintln(w, "| what | n | median or figure | p99 | ratio | to | target | | counts |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|---|---|---|---|")
	for _, s := range sections {
		fmt.Fprintf(w, "| **%s** | | | | | | | | |\n", s.title)
		for _, r := range s.rows {
			writeCells(w, r.cells())
		}
		if s.err != nil {
			writeCells(w, []string{"not measured: " + s.err.Error(), "", "", "", "", "", "", "", ""})
		}
	}
}

func (r row) cells() []string {
	n, ratio := "", ""
	if r.n > 0 {
		n = fmt.Sprint(r.n)
	}
	if r.ratio > 0 {
		ratio = fmt.Sprintf("%.2f", r.ratio)
	}
	return []string{r.what, n, r.figure, r.p99, ratio, r.against, r.target.text, r.target.verdict(), r.note}
}

// writeCells writes one line of the table. A line break or a bar would end a cell.
func writeCells(w io.Writer, cells []string) {
	for i, text := range cells {
		cells[i] = strings.NewReplacer("\n", " ", "|", "\\|").Replace(cmp.Or(text, " "))
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}
