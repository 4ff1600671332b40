package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"colabrelay/shared/e2e/harness"
)

// isUnfinished reports whether the run of an answer has not ended: on a busy machine any run may
// outlast its call.
func isUnfinished(a harness.Answer) bool {
	return a.String("status") == "queued" || a.String("status") == "running"
}

// killRelayDuring calls a tool, kills the relay when code on the VM has written the file, and tells
// the code so with the file relay-killed.
func (d *demo) killRelayDuring(ctx context.Context, file, tool string, arguments map[string]any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	old, work := d.host, d.executor.Config.Dir
	killed := whenWritten(ctx, filepath.Join(work, file), old.Kill)
	d.asked(tool, arguments)
	// A call of a busy machine may be over before the kill. Then the run still waits for it.
	for a, err := old.Call(ctx, tool, arguments); err == nil; a, err = old.Call(ctx, tool, arguments) {
		d.answered(a)
		if a.Fields["can_continue"] == true {
			continue
		}
		if !isUnfinished(a) {
			return fmt.Errorf("%s ended before the relay was killed: %s", tool, a.Text)
		}
		break
	}
	if err := <-killed; err != nil {
		return err
	}
	d.line("$ kill -9 %d   # the relay", old.PID())
	return os.WriteFile(filepath.Join(work, "relay-killed"), nil, 0o600)
}

// newRelay starts a relay in place of the one that was killed.
func (d *demo) newRelay(ctx context.Context) error {
	if err := d.startHost(ctx, longHold); err != nil {
		return err
	}
	d.line("a new relay, pid %d", d.host.PID())
	fmt.Fprintln(d.out)
	return nil
}

// whenWritten calls do when a file exists. The channel then gets nil, or the error of ctx.
func whenWritten(ctx context.Context, path string, do func()) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := harness.Poll(ctx, func() (bool, error) { _, err := os.Stat(path); return err == nil, nil })
		if err == nil {
			do()
		}
		result <- err
	}()
	return result
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

func (d *demo) end(ctx context.Context) error {
	d.title("the end", "Nothing is left running.")
	_ = d.host.Close() // it waits for the relay's end; the SDK's client reports a slow one as an error
	if err := d.executor.Stop(ctx); err != nil {
		return err
	}
	// The executor deletes this record after its kernel has ended.
	record := filepath.Join(d.executor.Config.Dir, ".colab-relay", "kernel.json")
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the kernel may still be running: %q exists", record)
	}
	d.line("Executor, kernel and relay have ended. Their files are in %s; you can delete that folder.", d.dir)
	return nil
}
