package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

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
func printDelay(ctx context.Context, b *bench) ([]row, error) {
	readers, err := b.printReaders(ctx)
	if err != nil {
		return nil, err
	}
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
		d, err := readers.read(ctx, r.lines, fmt.Sprintf(stamps, r.lines, r.least, r.most, r.flush))
		if err != nil {
			return rows, err
		}
		rows = append(rows, d.rows(r.what, r.least > 0.5)...)
	}
	return rows, nil
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

func (b *bench) printReaders(ctx context.Context) (r printReaders, err error) {
	e, err := b.executor(ctx, b.memory)
	if err != nil {
		return r, err
	}
	if r.run, err = b.client(e.Ready.LocalURL); err != nil {
		return r, err
	}
	_, url, err := b.wire(e.Ready.LocalURL, printReadTrip)
	if err != nil {
		return r, err
	}
	if r.far, err = b.client(url); err != nil {
		return r, err
	}
	r.near = &countingReader{ExecutionReader: r.run}
	r.bare, err = b.kernelOf(ctx, e)
	return r, err
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

func (r printReaders) read(ctx context.Context, lines int, code string) (d printDelays, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var bareErr, nearErr, farErr error
	var reading sync.WaitGroup
	reading.Go(func() { d.bare, bareErr = bareStamps(ctx, r.bare, lines) })
	r.near.requests = 0
	e, err := r.run.Submit(ctx, contract.Submit{Code: code})
	if err != nil {
		cancel()
	}
	reading.Go(func() { d.near, nearErr = followStamps(ctx, r.near, e) })
	reading.Go(func() { d.far, farErr = followStamps(ctx, r.far, e) })
	reading.Wait()
	for _, failed := range []error{err, bareErr, nearErr, farErr} {
		if failed != nil {
			return d, failed
		}
	}
	if len(d.near) != lines || len(d.far) != lines {
		return d, fmt.Errorf("%d and %d lines arrived of %d", len(d.near), len(d.far), lines)
	}
	d.requests = r.near.requests
	return d, nil
}

// followStamps reads an execution with client.Follow.
func followStamps(ctx context.Context, vm client.ExecutionReader, e contract.Execution) (delays samples, err error) {
	_, followErr := client.Follow(ctx, vm, e, client.FollowOptions{Visit: func(e contract.Execution) bool {
		now := time.Now()
		for _, event := range e.Events {
			if err == nil && event.Type == contract.EventStream {
				err = delays.add(now, event.Text)
			}
		}
		return true
	}})
	if err == nil {
		err = followErr
	}
	return delays, err
}

// bareStamps reads so many lines from a kernel that another client has given the code.
func bareStamps(ctx context.Context, kernel *jupyter.Client, lines int) (delays samples, err error) {
	for err == nil && len(delays) < lines {
		var m *jupyter.Message
		if m, err = kernel.Receive(ctx); err != nil {
			break
		}
		now := time.Now()
		if m.Header.MsgType != jupyter.MsgStream || !bytes.Contains(m.Content, []byte("stdout")) {
			continue
		}
		var stream struct{ Text string }
		if err = json.Unmarshal(m.Content, &stream); err == nil {
			err = delays.add(now, stream.Text)
		}
	}
	return delays, err
}

// add appends the age of each stamp in a text of whole lines.
func (s *samples) add(now time.Time, text string) error {
	for _, line := range strings.Fields(text) {
		printed, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return err
		}
		*s = append(*s, now.Sub(time.UnixMicro(int64(printed*1e6))))
	}
	return nil
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
	do    func(context.Context, *harness.Host) (done float64, err error)

	done float64 // how often it was done, or which part of it
	took harness.Traffic
}

// typicalHour counts what an hour of work sends through the tunnel, action by action. Each
// long action has an executor and a relay of its own, so that they take place at once.
func typicalHour(ctx context.Context, b *bench) ([]row, error) {
	actions := []*hourAction{
		{what: "a silent run of ten minutes", times: 1, do: longRun("import time\ntime.sleep(600)")},
		{what: "an idle minute of a connected relay", times: 39, do: idleMinute},
		{what: "a run of ten minutes that prints a line every 10 s", times: 1, do: longRun("import time\nfor i in range(60):\n    time.sleep(10)\n    print('step', i)")},
		{what: "a quick call", times: 20, do: tenQuickCalls},
		{what: "a list or inspect call", times: 5, do: listAndInspect},
		{what: "a download of 10 MB", times: 1, do: download},
	}
	var running sync.WaitGroup
	errs := make([]error, len(actions))
	for i, a := range actions {
		running.Go(func() { errs[i] = a.count(ctx, b) })
	}
	running.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", actions[i].what, err)
		}
	}
	return hourRows(actions), nil
}

// count counts what the action sends, after a quick call that makes the relay know the
// executor.
func (a *hourAction) count(ctx context.Context, b *bench) error {
	e, err := b.executor(ctx, b.memory)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(e.Config.Dir, "data.bin"), noise(10_000_000), 0o600); err != nil {
		return err
	}
	wire, url, err := b.wire(e.Ready.LocalURL, 0)
	if err != nil {
		return err
	}
	h, err := b.host(ctx, url)
	if err != nil {
		return err
	}
	if err := quickCall(ctx, h); err != nil {
		return err
	}
	wire.CutAt() // resets the counts
	a.done, err = a.do(ctx, h)
	a.took = wire.Traffic()
	return err
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

func tenQuickCalls(ctx context.Context, h *harness.Host) (done float64, err error) {
	for ; done < 10 && err == nil; done++ {
		err = quickCall(ctx, h)
	}
	return done, err
}

func quickCall(ctx context.Context, h *harness.Host) error {
	_, err := call(ctx, h, "run_code_quick", map[string]any{"code": "import math\nradius = 2.5\nprint(math.pi * radius ** 2)"})
	return err
}

func listAndInspect(ctx context.Context, h *harness.Host) (done float64, err error) {
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"list_colab_files", nil}, {"list_colab_variables", nil}, {"inspect_variable", map[string]any{"name": "radius"}},
		{"list_executions", nil}, {"check_colab_connection", nil},
	} {
		if _, err := call(ctx, h, c.tool, c.args); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

func download(ctx context.Context, h *harness.Host) (float64, error) {
	_, err := call(ctx, h, "download_from_colab", map[string]any{"remote_path": "data.bin"})
	return 1, err
}

// longRun waits for a run of ten minutes as run_code_long advises, and leaves it after
// hourMeasured.
func longRun(code string) func(context.Context, *harness.Host) (float64, error) {
	return func(ctx context.Context, h *harness.Host) (done float64, err error) {
		began := time.Now()
		a, err := call(ctx, h, "run_code_long", map[string]any{"code": code, "timeout_seconds": 660})
		for err == nil && a.String("status") == "running" && time.Since(began) < hourMeasured {
			a, err = call(ctx, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "offset": a.Int("next_offset"), "wait_seconds": 45})
		}
		if err == nil && a.String("status") != "running" {
			err = fmt.Errorf("the run ended %s", a.String("status"))
		}
		return float64(time.Since(began)) / float64(hourRun), err
	}
}

func idleMinute(ctx context.Context, _ *harness.Host) (float64, error) {
	select {
	case <-time.After(time.Minute):
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
