package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// unlike matches code whose output is another one each time, that needs a page, or that ends or
// outlives its kernel.
var unlike = regexp.MustCompile(`(?i)input\(|widget|comm\b|kill|exit|interrupt|keyboard|signal|sleep|history|parallel|\btime|random|rand|datetime|environ|http|urllib|requests|pip |%%R|display_javascript|thread|subprocess|id\(|while True|svg|InlineBackend|stderr`)

// maxRuns bounds the samples that run: each needs two kernels.
const maxRuns = 24

// outputs runs sample notebooks in an executor's kernel, and compares their outputs with those of
// nbclient in the same Python.
func (l *lab) outputs(ctx context.Context, dir string, samples []sample) (err error) {
	env := l.env
	defer func() { l.env = env }()
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	python := filepath.Join(stacks.Root(), ".python", "new", "bin", "python")
	vm, stop, err := l.vm(ctx, work, python)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ran, seen := 0, map[string]bool{}
	for _, s := range samples {
		if fits, err := s.runs(); err != nil || !fits || seen[string(s.text)] || ran == maxRuns {
			continue
		}
		seen[string(s.text)] = true
		ran++
		if err := runSample(ctx, vm, filepath.Join(dir, "outputs", s.name), s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	l.drive(ctx, sdk{name: "nbclient 0.11.0, nbdime 4.0.4", checks: 2, command: []string{
		"env", "KERNEL_PYTHON=" + python, "PYTHONPATH=" + filepath.Join(stacks.Root(), "relay", "output", "testdata"),
		"PATH=" + filepath.Dir(l.python()) + ":" + os.Getenv("PATH"),
		l.python(), filepath.Join(l.drivers, "python", "outputs.py"), filepath.Join(dir, "outputs"), work, fmt.Sprint(ran),
	}})
	return nil
}

// runs reports whether the sample's output is the same each time.
func (s sample) runs() (bool, error) {
	d, err := notebook.Parse(s.text)
	if err != nil || !d.IsPython() {
		return false, err
	}
	code := 0
	for i := range d.Len() {
		if c := d.Cell(i); c.Type == notebook.Code && strings.TrimSpace(c.Source) != "" {
			if code++; unlike.MatchString(c.Source) {
				return false, nil
			}
		}
	}
	return code > 0, nil
}

// vm starts an executor and returns a client for it.
func (l *lab) vm(ctx context.Context, dir, python string) (*client.Client, func() error, error) {
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	secret := auth.GenerateSecret()
	executor, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binaries.Executor, Python: python, Dir: dir, Secret: secret.Reveal()})
	if err != nil {
		return nil, nil, err
	}
	vm, err := client.New(client.Config{BaseURL: executor.Ready.LocalURL, Secret: secret})
	if err != nil {
		executor.Kill()
		return nil, nil, err
	}
	return vm, func() error {
		vm.Close()
		stopping, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return executor.Stop(stopping)
	}, nil
}

// runSample runs a sample in a new kernel; dir gets it as it was and as it is then.
func runSample(ctx context.Context, vm *client.Client, dir string, s sample) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, "ours.ipynb")
	for _, name := range []string{path, filepath.Join(dir, "source.ipynb")} {
		if err := os.WriteFile(name, s.text, 0o600); err != nil {
			return err
		}
	}
	spec := nbrun.Spec{Path: path}
	spec.OnError, spec.Restart = nbrun.ContinueAfter, true
	run, err := nbrun.Open(filepath.Join(dir, "record"), spec)
	if err != nil {
		return err
	}
	defer run.Close()
	out, err := run.Advance(ctx, vm, nbrun.Options{Until: time.Now().Add(time.Minute)})
	if err == nil && out.CanContinue {
		err = fmt.Errorf("it is %s after a minute", out.Status)
	}
	return err
}
