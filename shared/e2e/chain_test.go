package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// chain is a sequence of runs on a VM, each of which follows the one before it.
type chain struct {
	t    *testing.T
	c    *client.Client
	name string
	ids  []string
}

// submit adds a cell that appends its number to a file of the chain's name, and then runs code.
func (c *chain) submit(code string) contract.Execution {
	c.t.Helper()
	s := c.cell(len(c.ids)+1, code)
	x, err := c.c.Submit(within(c.t, time.Minute), s)
	must(c.t, err)
	c.ids = append(c.ids, x.ExecutionID)
	return x
}

func (c *chain) cell(n int, code string) contract.Submit {
	s := contract.Submit{
		RequestID: fmt.Sprintf("%s-%d", c.name, n),
		Code:      fmt.Sprintf("with open(%q, 'a') as f: print(%d, file=f)\n%s", c.name, n, code),
	}
	if n > 1 {
		s.AfterRequestID = fmt.Sprintf("%s-%d", c.name, n-1)
	}
	return s
}

// statuses are those of the chain's runs when they have ended.
func (c *chain) statuses() string {
	c.t.Helper()
	var all []string
	for _, id := range c.ids {
		x := c.ended(id)
		all = append(all, string(x.Status))
		if x.Status == contract.StatusCancelled && x.Reason == "" {
			c.t.Errorf("%s has no reason", id)
		}
	}
	return strings.Join(all, " ")
}

func (c *chain) ended(id string) contract.Execution {
	c.t.Helper()
	for {
		x, err := c.c.Execution(within(c.t, time.Minute), id, 0, 30*time.Second, contract.MaxReadBytes)
		must(c.t, err)
		if x.Status.Finished() {
			return x
		}
	}
}

// ran are the numbers of the cells that ran, in order.
func ran(t *testing.T, dir, name string) string {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(lines)), " ")
}

func TestAChainOfRunsStopsWhereItFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := startExecutor(t, harness.ExecutorConfig{Dir: dir})
	c := relayClient(t, e)
	probe, err := c.Probe(within(t, time.Minute))
	must(t, err)
	if !probe.Limits.AfterRequestID {
		t.Error("the probe does not announce after_request_id")
	}
	t.Run("a failing cell", func(t *testing.T) {
		cells := &chain{t: t, c: c, name: "failing"}
		for _, code := range []string{"", "", "1/0", "", ""} {
			cells.submit(code)
		}
		if got := cells.statuses(); got != "succeeded succeeded failed cancelled cancelled" {
			t.Errorf("statuses: %s", got)
		}
		if got := ran(t, dir, "failing"); got != "1 2 3" {
			t.Errorf("ran: %s", got)
		}
		x, err := c.Submit(within(t, time.Minute), cells.cell(4, "")) // a repeated request
		if err != nil || x.ExecutionID != cells.ids[3] || !strings.Contains(x.Reason, `"failing-3"`) {
			t.Errorf("submitted again: %s, %q, %v", x.ExecutionID, x.Reason, err)
		}
		other := cells.cell(4, "")
		other.AfterAny = true
		var refused *contract.Error
		if _, err := c.Submit(within(t, time.Minute), other); !errors.As(err, &refused) || refused.Code != contract.CodeConflict {
			t.Errorf("with after_any: %v", err)
		}
	})
	t.Run("other runs go between", func(t *testing.T) { betweenCells(t, e, c) })
	t.Run("a killed kernel", func(t *testing.T) {
		cells := &chain{t: t, c: c, name: "killed"}
		for _, code := range []string{"", "import time; print('on', flush=True); time.sleep(600)", "", ""} {
			cells.submit(code)
		}
		k, err := c.Kernel(within(t, time.Minute))
		must(t, err)
		_, err = c.Execution(within(t, time.Minute), cells.ids[1], 0, 30*time.Second, contract.MaxReadBytes)
		must(t, err)
		must(t, syscall.Kill(k.PID, syscall.SIGKILL))
		if got := cells.statuses(); got != "succeeded kernel_died cancelled cancelled" {
			t.Errorf("statuses: %s", got)
		}
		must(t, awaitKernel(t, c, k.KernelID))
		if x := cells.submit(""); cells.ended(x.ExecutionID).Status != contract.StatusCancelled {
			t.Errorf("behind the cancelled ones: %+v", x)
		}
		if got := ran(t, dir, "killed"); got != "1 2" {
			t.Errorf("ran: %s", got)
		}
		after := cells.cell(7, "")
		after.AfterRequestID = "killed-1"
		x, err := c.Submit(within(t, time.Minute), after)
		if err != nil || x.Status != contract.StatusCancelled || !strings.Contains(x.Reason, "an earlier kernel") {
			t.Errorf("behind a success in the killed kernel: %s, %q, %v", x.Status, x.Reason, err)
		}
	})
	t.Run("a killed executor", func(t *testing.T) {
		cells := &chain{t: t, c: c, name: "lost"}
		for _, code := range []string{"", "import time; print('on', flush=True); time.sleep(600)", "", ""} {
			cells.submit(code)
		}
		_, err := c.Execution(within(t, time.Minute), cells.ids[1], 0, 30*time.Second, contract.MaxReadBytes)
		must(t, err)
		e.Kill()
		cells.c = relayClient(t, startExecutor(t, harness.ExecutorConfig{Dir: dir}))
		if got := cells.statuses(); got != "succeeded lost cancelled cancelled" {
			t.Errorf("statuses: %s", got)
		}
		ids := cells.ids
		cells.ids = nil
		for range ids {
			code := ""
			if len(cells.ids) == 1 {
				code = "import time; print('on', flush=True); time.sleep(600)"
			}
			cells.submit(code)
		}
		if fmt.Sprint(cells.ids) != fmt.Sprint(ids) {
			t.Errorf("submitted again: %v, want %v", cells.ids, ids)
		}
		if x := cells.submit(""); x.Status != contract.StatusCancelled {
			t.Errorf("behind the cancelled ones: %s", x.Status)
		}
		if got := ran(t, dir, "lost"); got != "1 2" {
			t.Errorf("ran: %s", got)
		}
	})
}

// betweenCells: while a notebook's cells wait, a run of the same relay or of another one waits
// for no more than the running cell and one other turn.
func betweenCells(t *testing.T, e *harness.Executor, c *client.Client) {
	cells := &chain{t: t, c: c, name: "between"}
	for range 12 {
		cells.submit("import time; time.sleep(.1)")
	}
	for name, from := range map[string]*client.Client{"the same relay": c, "another relay": relayClient(t, e)} {
		before := len(strings.Fields(ran(t, e.Config.Dir, "between")))
		x, err := from.Submit(within(t, time.Minute), contract.Submit{Code: "print(len(open('between').readlines()))", WaitSeconds: 30})
		must(t, err)
		var cellsRan int
		if _, err := fmt.Sscan(x.Events[0].Text, &cellsRan); err != nil || x.Status != contract.StatusSucceeded {
			t.Fatalf("%s: %+v, %v", name, x, err)
		}
		if cellsRan > before+2 {
			t.Errorf("a run of %s waited from cell %d to cell %d", name, before, cellsRan)
		}
	}
	if got := cells.statuses(); got != strings.TrimSpace(strings.Repeat("succeeded ", 12)) {
		t.Errorf("statuses: %s", got)
	}
	if got := ran(t, e.Config.Dir, "between"); got != "1 2 3 4 5 6 7 8 9 10 11 12" {
		t.Errorf("ran: %s", got)
	}
}

// awaitKernel waits for a kernel after the one with this id.
func awaitKernel(t *testing.T, c *client.Client, id string) error {
	return harness.Poll(within(t, time.Minute), func() (bool, error) {
		k, err := c.Kernel(t.Context())
		return k.KernelID != "" && k.KernelID != id && k.Status == contract.KernelIdle, err
	})
}
