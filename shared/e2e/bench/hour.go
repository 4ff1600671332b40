package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/e2e/harness"
)

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
