package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const steps = 50

func (d *demo) longRun(ctx context.Context) error {
	d.title("the relay is killed during a long run", "The run belongs to the VM, so a new relay fetches the rest of its output.")
	d.host.Close()
	var once sync.Mutex
	shown := 0
	progress := func(message string) {
		once.Lock()
		defer once.Unlock()
		if shown++; shown <= 5 {
			d.line("  progress: %s", message)
		}
	}
	if err := d.startHost(ctx, progress); err != nil {
		return err
	}
	a, err := d.call(ctx, d.host, "run_code_long", map[string]any{
		"code": fmt.Sprintf("import time\nfor step in range(%d):\n    print('step', step, 'loss', round(1 / (step + 1), 4), flush=True)\n    time.sleep(0.2)", steps),
	})
	if err != nil {
		return err
	}
	if a.String("status") != "running" {
		return fmt.Errorf("the long run is %q", a.String("status"))
	}
	d.line("$ kill -9 %d   # the relay", d.host.PID())
	d.host.Kill()
	if err := d.startHost(ctx, nil); err != nil {
		return err
	}
	d.line("a new relay, pid %d", d.host.PID())
	fmt.Fprintln(d.out)
	output := a.String("stdout")
	for a.String("status") == "running" {
		a, err = d.call(ctx, d.host, "get_execution", map[string]any{
			"execution_id": a.String("execution_id"), "offset": a.Int("next_offset"), "wait_seconds": 10})
		if err != nil {
			return err
		}
		output += a.String("stdout")
	}
	if n := strings.Count(output, "\n"); n != steps {
		return fmt.Errorf("%d of %d lines were received", n, steps)
	}
	d.line("all %d lines were received, each exactly once", steps)
	return nil
}

func (d *demo) endlessLoop(ctx context.Context) error {
	d.title("an endless loop", "The executor interrupts it at its deadline. The variables are kept.")
	a, err := d.call(ctx, d.host, "run_code_long", map[string]any{
		"code": "rounds = 0\nwhile True:\n    rounds += 1", "timeout_seconds": 2})
	if err != nil {
		return err
	}
	if a.String("status") != "timed_out" {
		return fmt.Errorf("the endless loop is %q", a.String("status"))
	}
	a, err = d.quick(ctx, "rounds > 0, weights.shape")
	if err == nil && a.String("result") != "(True, (2, 3))" {
		err = fmt.Errorf("the variables are not kept: %s", a.Text)
	}
	return err
}

func (d *demo) kernelDeath(ctx context.Context) error {
	d.title("the kernel is killed", "As an out-of-memory kill or a native crash would. The answer says so, and the next call uses a new kernel.")
	a, err := d.quick(ctx, "import os\nos.kill(os.getpid(), 9)")
	if err != nil {
		return err
	}
	if a.String("status") != "kernel_died" {
		return fmt.Errorf("the killed kernel is %q", a.String("status"))
	}
	a, err = d.quick(ctx, "'weights' in globals()")
	if err == nil && a.String("result") != "False" {
		err = fmt.Errorf("the new kernel is not seen to be one: %s", a.Text)
	}
	return err
}

func (d *demo) cost(ctx context.Context) error {
	d.title("the cost", "Durations as the host measured them, the memory of both programs, and a check that nothing is left running.")
	for _, call := range d.calls {
		d.line("%-24s %10s", call.tool, took(call.took))
	}
	fmt.Fprintln(d.out)
	d.line("%-24s %7.1f MB", "relay, resident", residentMB(d.host.PID()))
	d.line("%-24s %7.1f MB", "executor, resident", residentMB(d.executor.PID()))
	requests, err := d.requests()
	if err != nil {
		return err
	}
	d.line("%-24s %7d", "requests to the executors", requests)
	if err := d.host.Close(); err != nil {
		return fmt.Errorf("closing the host: %w", err)
	}
	if err := d.executor.Stop(ctx); err != nil {
		return err
	}
	// The executor deletes this record after its kernel has ended.
	record := filepath.Join(d.executor.Config.Dir, ".colab-relay", "kernel.json")
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the kernel may still be running: %q exists", record)
	}
	fmt.Fprintln(d.out)
	d.line("Executor, kernel and relay have ended. Their files are in %s; you can delete that folder.", d.dir)
	return nil
}

// residentMB returns a process's resident memory in MB, or 0 on systems without /proc.
func residentMB(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var kb float64
	if _, rest, found := strings.Cut(string(status), "VmRSS:"); found {
		_, _ = fmt.Sscan(rest, &kb)
	}
	return kb / 1024
}

// requests returns how many requests the executors logged.
func (d *demo) requests() (int, error) {
	total := 0
	for _, e := range append(d.before, d.executor) {
		log, err := os.ReadFile(filepath.Join(e.Config.Dir, ".colab-relay", "executor.log"))
		if err != nil {
			return 0, err
		}
		total += strings.Count(string(log), `"msg":"request"`)
	}
	return total, nil
}
