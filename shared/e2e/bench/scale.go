package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
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
