package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

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
func scale(ctx context.Context, b *bench) ([]row, error) {
	var s scaled
	for _, to := range []*vm{&s.small, &s.large} {
		var err error
		if to.executor, err = b.executor(ctx, b.memory); err != nil {
			return nil, err
		}
		if to.Client, err = b.client(to.executor.Ready.LocalURL); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, step := range []func(context.Context, *bench) ([]row, error){s.files, s.executions, s.variables} {
		more, err := step(ctx, b)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// compare measures a call on both and returns a row for each.
func (s scaled) compare(ctx context.Context, t timing, what, small, large string, do func(context.Context, vm) error) ([]row, error) {
	times, err := t.inTurn(ctx,
		way{name: what + small, do: func(ctx context.Context) error { return do(ctx, s.small) }},
		way{name: what + large, do: func(ctx context.Context) error { return do(ctx, s.large) }})
	if err != nil {
		return nil, err
	}
	return []row{
		latency(what+small, times[0]),
		latency(what+large, times[1]).comparedTo("the row above", times[1], times[0]),
	}, nil
}

func runOnePlusOne(ctx context.Context, v vm) error {
	_, err := v.Submit(ctx, contract.Submit{Code: onePlusOne, WaitSeconds: 10})
	return err
}

// files has a folder of fewFiles on one executor and a folder of manyFiles on the other.
func (s scaled) files(ctx context.Context, b *bench) ([]row, error) {
	b.progress("creating %d files", manyFiles)
	for v, n := range map[vm]int{s.small: fewFiles, s.large: manyFiles} {
		if err := makeFiles(filepath.Join(v.executor.Config.Dir, "folder"), n); err != nil {
			return nil, err
		}
	}
	few, many := " in a folder of 1,000 files", " in a folder of 100,000 files"
	manifest := contract.Manifest{Path: "folder"}
	for i := range fewFiles {
		manifest.Files = append(manifest.Files, contract.ManifestFile{Name: fileName(i), SizeBytes: 1})
	}
	rows, err := s.compare(ctx, timing{n: 20, warmUps: 2}, "compare 1,000 names", few, many, func(ctx context.Context, v vm) error {
		_, err := v.Compare(ctx, manifest)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Later pages come from the same reading as the first one.
	more, err := s.compare(ctx, timing{n: 20, warmUps: 2}, "the first page of a listing", few, many, func(ctx context.Context, v vm) error {
		_, err := v.Files(ctx, "folder")
		return err
	})
	return append(rows, more...), err
}

func fileName(i int) string { return fmt.Sprintf("file%06d.txt", i) }

func makeFiles(dir string, n int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fileName(i)), []byte("x"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// executions lets one executor run manyExecutions first.
func (s scaled) executions(ctx context.Context, b *bench) ([]row, error) {
	b.progress("%d executions", manyExecutions)
	began := time.Now()
	if err := runMany(ctx, s.large, manyExecutions); err != nil {
		return nil, err
	}
	b.progress("they took %.0f s", time.Since(began).Seconds())
	none, many := " on a new executor", " after 10,000 executions"
	rows, err := s.compare(ctx, timing{n: 200, warmUps: 20}, "POST 1+1", none, many, runOnePlusOne)
	if err != nil {
		return nil, err
	}
	more, err := s.compare(ctx, timing{n: 200, warmUps: 20}, "list of 20 executions", none, many, func(ctx context.Context, v vm) error {
		_, err := v.List(ctx, 20)
		return err
	})
	return append(rows, more...), err
}

// runMany submits from several goroutines, so that the kernel always has work.
func runMany(ctx context.Context, v vm, n int) error {
	const callers = 8
	var running sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		running.Go(func() {
			for range n / callers {
				if _, err := v.Submit(ctx, contract.Submit{Code: "pass", WaitSeconds: 30}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(errs)
	return <-errs
}

// variables gives one kernel manyVariables first.
func (s scaled) variables(ctx context.Context, _ *bench) ([]row, error) {
	define := fmt.Sprintf("for i in range(%d): globals()[f'variable{i}'] = i", manyVariables)
	x, err := s.large.Submit(ctx, contract.Submit{Code: define, WaitSeconds: 30})
	if err != nil || x.Status != contract.StatusSucceeded {
		return nil, fmt.Errorf("defining variables: %s, %w", x.Status, err)
	}
	none, many := " without variables", " with 10,000 variables"
	rows, err := s.compare(ctx, timing{n: 200, warmUps: 20}, "POST 1+1", none, many, runOnePlusOne)
	if err != nil {
		return nil, err
	}
	more, err := s.compare(ctx, timing{n: 30, warmUps: 3}, "list variables", none, many, func(ctx context.Context, v vm) error {
		_, err := v.Variables(ctx)
		return err
	})
	return append(rows, more...), err
}

// startUp measures how long the programs take to be ready, and how big they are.
func startUp(ctx context.Context, b *bench) ([]row, error) {
	kernels, health, err := kernelStarts(ctx, b)
	if err != nil {
		return nil, err
	}
	relay, err := relayStarts(ctx, b)
	if err != nil {
		return nil, err
	}
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
	sizes, err := sizes(ctx, b)
	return append(rows, sizes...), err
}

// kernelStarts measures a bare kernel and an executor in turn, and on the way how long the
// executor takes to answer at all.
func kernelStarts(ctx context.Context, b *bench) (kernels []samples, health samples, err error) {
	var round *bench
	end := func() error {
		round.close()
		return nil
	}
	kernels, err = timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "bare kernel", after: end, do: func(ctx context.Context) error {
			round = b.child(b.name)
			_, err := round.bareKernel(ctx)
			return err
		}},
		way{name: "executor", after: end, do: func(ctx context.Context) error {
			round = b.child(b.name)
			took, err := round.executorToKernel(ctx)
			health = append(health, took)
			return err
		}})
	return kernels, health, err
}

// executorToKernel starts an executor, returns when its kernel is ready, and says when
// /health answered.
func (b *bench) executorToKernel(ctx context.Context) (health time.Duration, err error) {
	address, err := freeport.Address()
	if err != nil {
		return 0, err
	}
	dir, err := b.folder(b.memory)
	if err != nil {
		return 0, err
	}
	c, err := b.client("http://" + address)
	if err != nil {
		return 0, err
	}
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
	if err = awaitOK(ctx, "http://"+address+contract.PathHealth); err == nil {
		health = time.Since(began)
		err = awaitKernel(ctx, c)
	}
	return health, errors.Join(err, <-started)
}

// awaitOK asks every millisecond.
func awaitOK(ctx context.Context, url string) error {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
			return nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func awaitKernel(ctx context.Context, c *client.Client) error {
	return harness.Poll(ctx, func() (bool, error) {
		k, err := c.Kernel(ctx)
		return k.Status == contract.KernelIdle, err
	})
}

func relayStarts(ctx context.Context, b *bench) (samples, error) {
	var round *bench
	s, err := timing{n: 30, warmUps: 2}.inTurn(ctx, way{
		name: "relay",
		do: func(ctx context.Context) error {
			round = b.child(b.name)
			_, err := round.host(ctx, "http://127.0.0.1:1")
			return err
		},
		after: func() error { round.close(); return nil },
	})
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// sizes returns what the programs take in memory after one call, and on disk.
func sizes(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	if err := quickCall(ctx, p.host); err != nil {
		return nil, err
	}
	var rows []row
	for _, program := range []struct {
		name, path string
		pid        int
		mostMB     float64
	}{
		{"executor", b.binaries.Executor, p.executor.PID(), 16},
		{"relay", b.binaries.Relay, p.host.PID(), 14},
	} {
		m, err := harness.MemoryOf(program.pid)
		if err != nil {
			return rows, err
		}
		info, err := os.Stat(program.path)
		if err != nil {
			return rows, err
		}
		mb := float64(info.Size()) / 1e6
		memory := row{what: program.name + ": RSS after one call", figure: fmt.Sprintf("%.1f MiB", m.Now)}
		if program.name == "relay" {
			memory.target = atMost(m.Now, 20, " MiB")
		}
		rows = append(rows, memory,
			row{what: program.name + ": size of the program", figure: fmt.Sprintf("%.1f MB", mb), target: atMost(mb, program.mostMB, " MB")})
	}
	return rows, nil
}
