package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
)

// Large scale. Small scale is a new executor, fewFiles and no variables.
const (
	manyExecutions = 10_000
	manyFiles      = 100_000
	fewFiles       = 1000
	manyVariables  = 10_000
)

// scaled is an executor that has much and one that has little.
type scaled struct{ small, large vm }

type vm struct {
	*client.Client
	executor *harness.Executor
}

// scale compares calls at a large scale with the same calls at a small one, in turn.
func scale(ctx context.Context, b *bench) []row {
	var s scaled
	for _, to := range []*vm{&s.small, &s.large} {
		to.executor = b.executor(ctx, b.memory)
		to.Client = b.client(to.executor.Ready.LocalURL)
	}
	return slices.Concat(s.files(ctx, b), s.executions(ctx, b), s.variables(ctx))
}

// compare measures a call on both and returns a row for each.
func (s scaled) compare(ctx context.Context, t timing, what, small, large string, do func(context.Context, vm)) []row {
	times := t.inTurn(ctx,
		way{name: what + small, do: func(ctx context.Context) { do(ctx, s.small) }},
		way{name: what + large, do: func(ctx context.Context) { do(ctx, s.large) }})
	return []row{
		latency(what+small, times[0]),
		latency(what+large, times[1]).comparedTo("the row above", times[1], times[0]),
	}
}

func runOnePlusOne(ctx context.Context, v vm) {
	harness.Must(v.Submit(ctx, contract.Submit{Code: onePlusOne, WaitSeconds: 10}))
}

// files has a folder of fewFiles on one executor and a folder of manyFiles on the other.
func (s scaled) files(ctx context.Context, b *bench) []row {
	b.progress("creating %d files", manyFiles)
	for v, n := range map[vm]int{s.small: fewFiles, s.large: manyFiles} {
		makeFiles(filepath.Join(v.executor.Config.Dir, "folder"), n)
	}
	few, many := " in a folder of 1,000 files", " in a folder of 100,000 files"
	manifest := contract.Manifest{Path: "folder"}
	for i := range fewFiles {
		manifest.Files = append(manifest.Files, contract.ManifestFile{Name: fileName(i), SizeBytes: 1})
	}
	rows := s.compare(ctx, timing{n: 20, warmUps: 2}, "compare 1,000 names", few, many, func(ctx context.Context, v vm) {
		harness.Must(v.Compare(ctx, manifest))
	})
	// Later pages come from the same reading as the first one.
	more := s.compare(ctx, timing{n: 20, warmUps: 2}, "the first page of a listing", few, many, func(ctx context.Context, v vm) {
		harness.Must(v.Files(ctx, "folder"))
	})
	return append(rows, more...)
}

func fileName(i int) string { return fmt.Sprintf("file%06d.txt", i) }

func makeFiles(dir string, n int) {
	harness.Check(os.Mkdir(dir, 0o700))
	for i := range n {
		harness.Check(os.WriteFile(filepath.Join(dir, fileName(i)), []byte("x"), 0o600))
	}
}

// executions lets one executor run manyExecutions first.
func (s scaled) executions(ctx context.Context, b *bench) []row {
	b.progress("%d executions", manyExecutions)
	began := time.Now()
	runMany(ctx, s.large, manyExecutions)
	b.progress("they took %.0f s", time.Since(began).Seconds())
	none, many := " on a new executor", " after 10,000 executions"
	rows := s.compare(ctx, timing{n: 200, warmUps: 20}, "POST 1+1", none, many, runOnePlusOne)
	more := s.compare(ctx, timing{n: 200, warmUps: 20}, "list of 20 executions", none, many, func(ctx context.Context, v vm) {
		harness.Must(v.List(ctx, 20))
	})
	return append(rows, more...)
}

// runMany submits from several goroutines, so that the kernel always has work.
func runMany(ctx context.Context, v vm, n int) {
	const callers = 8
	var running errgroup.Group
	for range callers {
		running.Go(func() error {
			for range n / callers {
				if _, err := v.Submit(ctx, contract.Submit{Code: "pass", WaitSeconds: 30}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	harness.Check(running.Wait())
}

// variables gives one kernel manyVariables first.
func (s scaled) variables(ctx context.Context) []row {
	define := fmt.Sprintf("for i in range(%d): globals()[f'variable{i}'] = i", manyVariables)
	x := harness.Must(s.large.Submit(ctx, contract.Submit{Code: define, WaitSeconds: 30}))
	harness.FailIf(x.Status != contract.StatusSucceeded, "defining variables: %s", x.Status)
	none, many := " without variables", " with 10,000 variables"
	rows := s.compare(ctx, timing{n: 200, warmUps: 20}, "POST 1+1", none, many, runOnePlusOne)
	more := s.compare(ctx, timing{n: 30, warmUps: 3}, "list variables", none, many, func(ctx context.Context, v vm) {
		harness.Must(v.Variables(ctx))
	})
	return append(rows, more...)
}

// startUp measures how long the programs take to be ready, and how big they are.
func startUp(ctx context.Context, b *bench) []row {
	kernels, health := kernelStarts(ctx, b)
	relay := relayStarts(ctx, b)
	bare, ready := kernels[0], kernels[1]
	healthRow := latency("executor: start to the answer of /health", health)
	healthRow.target = within(health.median(), 100*time.Millisecond)
	relayRow := latency("relay: start to the answer of initialize", relay)
	relayRow.target = within(relay.median(), 30*time.Millisecond)
	rows := []row{
		healthRow,
		latency("launching the bare kernel, to its kernel_info", bare),
		ratioAtMost(latency("executor: start to a ready kernel", ready).comparedTo("bare kernel", ready, bare), 1.2),
		relayRow,
	}
	return append(rows, sizes(ctx, b)...)
}

// kernelStarts measures a bare kernel and an executor in turn, and on the way how long the
// executor takes to answer at all.
func kernelStarts(ctx context.Context, b *bench) (kernels []samples, health samples) {
	var round *bench
	end := func() { round.close() }
	kernels = timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "bare kernel", after: end, do: func(ctx context.Context) {
			round = b.child(b.name)
			round.bareKernel(ctx)
		}},
		way{name: "executor", after: end, do: func(ctx context.Context) {
			round = b.child(b.name)
			health = append(health, round.executorToKernel(ctx))
		}})
	return kernels, health
}

// executorToKernel starts an executor, returns when its kernel is ready, and says when
// /health answered.
func (b *bench) executorToKernel(ctx context.Context) (health time.Duration) {
	address := harness.Must(freeport.Address())
	dir := b.folder(b.memory)
	c := b.client("http://" + address)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	config := b.executorConfig(dir)
	config.Listen = address
	started := make(chan error, 1)
	began := time.Now()
	go func() {
		e, err := harness.StartExecutor(ctx, config)
		if err == nil {
			b.atEnd(func() { stop(e) })
		}
		started <- err
	}()
	awaitErr := harness.Try(func() {
		awaitOK(ctx, "http://"+address+contract.PathHealth)
		health = time.Since(began)
		awaitKernel(ctx, c)
	})
	harness.Check(errors.Join(awaitErr, <-started))
	return health
}

// awaitOK asks every millisecond.
func awaitOK(ctx context.Context, url string) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
			return
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			harness.Check(ctx.Err())
		}
	}
}

func awaitKernel(ctx context.Context, c *client.Client) {
	harness.Check(harness.Poll(ctx, func() (bool, error) {
		k, err := c.Kernel(ctx)
		return k.Status == contract.KernelIdle, err
	}))
}

func relayStarts(ctx context.Context, b *bench) samples {
	var round *bench
	return timing{n: 30, warmUps: 2}.inTurn(ctx, way{
		name: "relay",
		do: func(ctx context.Context) {
			round = b.child(b.name)
			round.host(ctx, "http://127.0.0.1:1")
		},
		after: func() { round.close() },
	})[0]
}

// sizes returns what the programs take in memory after one call, and on disk.
func sizes(ctx context.Context, b *bench) []row {
	p := b.pair(ctx)
	quickCall(ctx, p.host)
	var rows []row
	for _, program := range []struct {
		name, path string
		pid        int
		mostMB     float64
	}{
		{"executor", b.binaries.Executor, p.executor.PID(), 16},
		{"relay", b.binaries.Relay, p.host.PID(), 14},
	} {
		m := harness.Must(harness.MemoryOf(program.pid))
		info := harness.Must(os.Stat(program.path))
		mb := float64(info.Size()) / 1e6
		memory := row{what: program.name + ": RSS after one call", figure: fmt.Sprintf("%.1f MiB", m.Now)}
		if program.name == "relay" {
			memory.target = atMost(m.Now, 20, " MiB")
		}
		rows = append(rows, memory,
			row{what: program.name + ": size of the program", figure: fmt.Sprintf("%.1f MB", mb), target: atMost(mb, program.mostMB, " MB")})
	}
	return rows
}
