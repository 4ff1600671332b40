package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// stamps prints the time now and then. Its arguments are the number of lines, the shortest
// and longest pause between two, in seconds, and whether print flushes. If it does not,
// ipykernel flushes every 0.2 s.
const stamps = `import random, time
for _ in range(%d):
    time.sleep(random.uniform(%g, %g))
    print(time.time(), flush=%s)
`

// printReadTrip is the round trip of the distant reader.
const printReadTrip = 100 * time.Millisecond

// printDelay measures how long a line of a long run takes from its print to three readers of
// the same run: a Jupyter client, client.Follow, and client.Follow at a distance. All clocks
// are this machine's.
func printDelay(ctx context.Context, b *bench) []row {
	readers := b.printReaders(ctx)
	var rows []row
	for _, r := range []struct {
		what        string
		lines       int
		least, most float64
		flush       string
	}{
		{"print", 40, 0.55, 1.05, "False"},
		{"print(…, flush=True)", 40, 0.55, 1.05, "True"},
		{"20 lines a second, flushed", 200, 0.03, 0.07, "True"},
	} {
		d := readers.read(ctx, r.lines, fmt.Sprintf(stamps, r.lines, r.least, r.most, r.flush))
		rows = append(rows, d.rows(r.what, r.least > 0.5)...)
	}
	return rows
}

// rows describes one run. Lines that follow each other closely have no target: Follow then
// spaces its requests out.
func (d printDelays) rows(what string, hasTarget bool) []row {
	beyond := d.far.less(printReadTrip / 2)
	near := latency(what+", to client.Follow", d.near)
	far := latency(fmt.Sprintf("%s, to client.Follow at %s, without the network's %s", what, short(printReadTrip), short(printReadTrip/2)), beyond)
	near.note = fmt.Sprintf("%d lines, %d requests", len(d.near), d.requests)
	if hasTarget {
		near, far = near.comparedTo("Jupyter client", d.near, d.bare), far.comparedTo("Jupyter client", beyond, d.bare)
		near.target = within(d.near.median(), 60*time.Millisecond)
		far.target = within(beyond.median(), 60*time.Millisecond)
	}
	return []row{latency(what+", to a Jupyter client", d.bare), near, far}
}

// less returns the samples minus d.
func (s samples) less(d time.Duration) samples {
	var rest samples
	for _, t := range s {
		rest = append(rest, t-d)
	}
	return rest
}

// printReaders read the same run.
type printReaders struct {
	bare *jupyter.Client
	near *countingReader
	far  client.ExecutionReader
	run  *client.Client
}

func (b *bench) printReaders(ctx context.Context) (r printReaders) {
	e := b.executor(ctx, b.memory)
	r.run = b.client(e.Ready.LocalURL)
	_, url := b.wire(e.Ready.LocalURL, printReadTrip)
	r.far = b.client(url)
	r.near = &countingReader{ExecutionReader: r.run}
	r.bare = b.kernelOf(ctx, e)
	return r
}

// countingReader counts requests.
type countingReader struct {
	client.ExecutionReader
	requests int
}

func (c *countingReader) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	c.requests++
	return c.ExecutionReader.Execution(ctx, id, offset, wait, maxBytes)
}

// printDelays are the delays of all lines of one run to each reader.
type printDelays struct {
	bare, near, far samples
	requests        int
}

func (r printReaders) read(ctx context.Context, lines int, code string) (d printDelays) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	r.near.requests = 0
	var reading errgroup.Group
	reading.Go(func() error { return harness.Try(func() { d.bare = bareStamps(ctx, r.bare, lines) }) })
	e, err := r.run.Submit(ctx, contract.Submit{Code: code})
	if err != nil {
		cancel()
	}
	reading.Go(func() error { return harness.Try(func() { d.near = followStamps(ctx, r.near, e) }) })
	reading.Go(func() error { return harness.Try(func() { d.far = followStamps(ctx, r.far, e) }) })
	harness.Check(cmp.Or(err, reading.Wait()))
	harness.FailIf(len(d.near) != lines || len(d.far) != lines, "%d and %d lines arrived of %d", len(d.near), len(d.far), lines)
	d.requests = r.near.requests
	return d
}

// followStamps reads an execution with client.Follow.
func followStamps(ctx context.Context, vm client.ExecutionReader, e contract.Execution) (delays samples) {
	harness.Must(client.Follow(ctx, vm, e, client.FollowOptions{Visit: func(e contract.Execution) bool {
		now := time.Now()
		for _, event := range e.Events {
			if event.Type == contract.EventStream {
				delays.add(now, event.Text)
			}
		}
		return true
	}}))
	return delays
}

// bareStamps reads so many lines from a kernel that another client has given the code.
func bareStamps(ctx context.Context, kernel *jupyter.Client, lines int) (delays samples) {
	for len(delays) < lines {
		m := harness.Must(kernel.Receive(ctx))
		now := time.Now()
		if m.Header.MsgType != jupyter.MsgStream || !bytes.Contains(m.Content, []byte("stdout")) {
			continue
		}
		var stream struct{ Text string }
		harness.Check(json.Unmarshal(m.Content, &stream))
		delays.add(now, stream.Text)
	}
	return delays
}

// add appends the age of each stamp in a text of whole lines.
func (s *samples) add(now time.Time, text string) {
	for _, line := range strings.Fields(text) {
		printed := harness.Must(strconv.ParseFloat(line, 64))
		*s = append(*s, now.Sub(time.UnixMicro(int64(printed*1e6))))
	}
}

const (
	// hourMeasured is about how much of a ten-minute run is measured: two calls that wait
	// as long as they do by default (RELAY_HOLD).
	hourMeasured = 80 * time.Second
	hourRun      = 10 * time.Minute
	// mostSilent is the most requests that a silent run of hourRun may take.
	mostSilent = 15
)

// hourAction is something that the hour contains.
type hourAction struct {
	what  string
	times float64 // in the hour
	do    func(context.Context, *harness.Host) (done float64)

	done float64 // how often it was done, or which part of it
	took harness.Traffic
}

// typicalHour counts what an hour of work sends through the tunnel, action by action. Each
// long action has an executor and a relay of its own, so that they take place at once.
func typicalHour(ctx context.Context, b *bench) []row {
	actions := []*hourAction{
		{what: "a silent run of ten minutes", times: 1, do: longRun("import time\ntime.sleep(600)")},
		{what: "an idle minute of a connected relay", times: 39, do: idleMinute},
		{what: "a run of ten minutes that prints a line every 10 s", times: 1, do: longRun("import time\nfor i in range(60):\n    time.sleep(10)\n    print('step', i)")},
		{what: "a quick call", times: 20, do: tenQuickCalls},
		{what: "a list or inspect call", times: 5, do: listAndInspect},
		{what: "a download of 10 MB", times: 1, do: download},
	}
	var running errgroup.Group
	for _, a := range actions {
		running.Go(func() error { return harness.Try(func() { a.count(ctx, b) }) })
	}
	harness.Check(running.Wait())
	return hourRows(actions)
}

// count counts what the action sends, after a quick call that makes the relay know the
// executor.
func (a *hourAction) count(ctx context.Context, b *bench) {
	e := b.executor(ctx, b.memory)
	harness.Check(os.WriteFile(filepath.Join(e.Config.Dir, "data.bin"), noise(10_000_000), 0o600))
	wire, url := b.wire(e.Ready.LocalURL, 0)
	h := b.host(ctx, url)
	quickCall(ctx, h)
	wire.CutAt() // resets the counts
	a.done = a.do(ctx, h)
	a.took = wire.Traffic()
}

func hourRows(actions []*hourAction) []row {
	var rows []row
	var requests, up, down float64
	for _, a := range actions {
		once := func(n int64) float64 { return a.times * float64(n) / a.done }
		more := []float64{once(a.took.Requests), once(a.took.Up), once(a.took.Down)}
		rows = append(rows, row{what: fmt.Sprintf("%g × %s", a.times, a.what), figure: counted(more[0], more[1], more[2])})
		requests, up, down = requests+more[0], up+more[1], down+more[2]
	}
	silent, idle := actions[0], actions[1]
	rows[0].target = atMost(math.Ceil(float64(silent.took.Requests)/silent.done), mostSilent, " requests")
	rows[1].target = atMost(float64(idle.took.Requests), 0, " requests")
	return append(rows, row{what: "the hour", figure: counted(requests, up, down)})
}

func counted(requests, up, down float64) string {
	return fmt.Sprintf("%.3g requests, %s up, %s down", requests, bytesText(up), bytesText(down))
}

func bytesText(n float64) string {
	switch {
	case n < 1e3:
		return fmt.Sprintf("%.0f B", n)
	case n < 1e6:
		return fmt.Sprintf("%.3g KB", n/1e3)
	}
	return fmt.Sprintf("%.4g MB", n/1e6)
}

func tenQuickCalls(ctx context.Context, h *harness.Host) float64 {
	for range 10 {
		quickCall(ctx, h)
	}
	return 10
}

func quickCall(ctx context.Context, h *harness.Host) {
	call(ctx, h, "run_code_quick", map[string]any{"code": "import math\nradius = 2.5\nprint(math.pi * radius ** 2)"})
}

func listAndInspect(ctx context.Context, h *harness.Host) (done float64) {
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"list_colab_files", nil}, {"list_colab_variables", nil}, {"inspect_variable", map[string]any{"name": "radius"}},
		{"list_executions", nil}, {"check_colab_connection", nil},
	} {
		call(ctx, h, c.tool, c.args)
		done++
	}
	return done
}

func download(ctx context.Context, h *harness.Host) float64 {
	call(ctx, h, "download_from_colab", map[string]any{"remote_path": "data.bin"})
	return 1
}

// longRun waits for a run of ten minutes as run_code_long advises, and leaves it after
// hourMeasured.
func longRun(code string) func(context.Context, *harness.Host) float64 {
	return func(ctx context.Context, h *harness.Host) float64 {
		began := time.Now()
		a := call(ctx, h, "run_code_long", map[string]any{"code": code, "timeout_seconds": 660})
		for a.String("status") == "running" && time.Since(began) < hourMeasured {
			a = call(ctx, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "offset": a.Int("next_offset"), "wait_seconds": 45})
		}
		harness.FailIf(a.String("status") != "running", "the run ended %s", a.String("status"))
		return float64(time.Since(began)) / float64(hourRun)
	}
}

func idleMinute(ctx context.Context, _ *harness.Host) float64 {
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	harness.Check(ctx.Err())
	return 1
}
