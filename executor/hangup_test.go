package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func (p *program) logged(text string) bool {
	p.t.Helper()
	log, err := os.ReadFile(filepath.Join(p.dir, ".colab-relay", "executor.log"))
	must(p.t, err)
	return strings.Contains(string(log), text)
}

// A program that writes to a pipe without a reader ends, so the executor must survive
// both the signal and the write.
func TestAHangUpEndsNeitherTheExecutorNorItsRun(t *testing.T) {
	tier.Long(t)
	read, write, err := os.Pipe()
	must(t, err)
	p := start(t, withStdout(write), func(p *program) { p.cmd.Stderr = write })
	write.Close()
	p.ready()
	id := p.started("long", "input('go on? ')\nprint('to the end')")
	read.Close()
	p.signal(syscall.SIGHUP)
	p.until("the hang-up is logged", func() bool { return p.logged("SIGHUP") })
	p.signal(syscall.SIGHUP)
	p.until("the run waits for input", func() bool {
		return call[contract.Execution](p, "GET", contract.PathExecutions+"/"+id, nil).Status == contract.StatusWaitingForInput
	})
	call[map[string]any](p, "POST", contract.PathExecutions+"/"+id+"/input", map[string]string{"text": "yes"})
	var e contract.Execution
	p.until("the run has ended", func() bool {
		e = call[contract.Execution](p, "GET", contract.PathExecutions+"/"+id+"?wait_seconds=5", nil)
		return e.Status.Finished()
	})
	if e.Status != contract.StatusSucceeded || !strings.Contains(printed(e), "to the end") {
		t.Errorf("the run ended %s: %+v", e.Status, e.Events)
	}

	kernel := call[contract.Kernel](p, "GET", contract.PathKernel, nil)
	must(t, syscall.Kill(kernel.PID, syscall.SIGKILL)) // its death writes a warning to the console
	p.until("the kernel's death is logged", func() bool { return p.logged("kernel died") })
	p.until("there is another kernel", func() bool {
		next := call[contract.Kernel](p, "GET", contract.PathKernel, nil)
		return next.KernelID != "" && next.KernelID != kernel.KernelID
	})
	if e := p.submit("after", "6*7", 20); resultOf(e) != "42" {
		t.Errorf("after the hang-up a run ends %s", e.Status)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
}
