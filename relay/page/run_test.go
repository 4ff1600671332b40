package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// quick makes the looks at a cell that runs quick.
func quick(p *Page) { p.timing.poll, p.timing.maxPoll = 5*time.Millisecond, 10*time.Millisecond }

// kernel counts the runs of a cell, each of which ends when the test lets it.
type kernel struct {
	mu      sync.Mutex
	started int
	finish  chan string // what the run prints
}

func (k *kernel) execute() func(context.Context, string) ([]map[string]any, int) {
	k.finish = make(chan string)
	return standin.Fake(func(ctx context.Context, _ string) []map[string]any {
		k.mu.Lock()
		k.started++
		k.mu.Unlock()
		select {
		case text := <-k.finish:
			return []map[string]any{standin.Stream(text)}
		case <-ctx.Done():
			return nil
		}
	})
}

func (k *kernel) runs() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.started
}

// runner connects a tab with a kernel and returns the id of its cell.
func runner(t *testing.T, o standin.Options) (*desk, *Tab, *kernel, string) {
	t.Helper()
	k := &kernel{}
	o.Execute = k.execute()
	d := newDesk(t, o, quick)
	tab := d.connected()
	id, err := tab.AddCode(t.Context(), 0, "python", "x")
	must(t, err)
	return d, tab, k, id
}

func prints(r Result, text string) bool { return strings.Contains(string(r.Outputs), text) }

// run runs a cell in a goroutine, which sends how it ended.
func run1(t *testing.T, tab *Tab, id string) chan error {
	ended := make(chan error, 1)
	go func() {
		result, err := tab.Run(t.Context(), id)
		if err == nil && !prints(result, "hello") {
			err = fmt.Errorf("the outputs are %s", result.Outputs)
		}
		ended <- err
	}()
	return ended
}

// leave runs a cell for a caller whose time has ended.
func leave(t *testing.T, tab *Tab, id string) {
	t.Helper()
	if _, err := tab.Run(waitedOut(t), id); !errors.Is(err, ErrRunning) {
		t.Fatalf("got %v, want ErrRunning", err)
	}
}

// A cell that ends between two calls does not run again in the second one.
func TestEndBetweenTwoCalls(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	leave(t, tab, id)
	leave(t, tab, id)
	k.finish <- "hello"
	within.Until(t, "the run has ended", func() bool { return !tab.Running(id) })
	if err := <-run1(t, tab, id); err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
	leave(t, tab, id) // this end was seen: the cell runs again
	within.Until(t, "the cell runs again", func() bool { return k.runs() == 2 })
	k.finish <- "bye"
}

// A cell with another text is another run.
func TestUpdateStartsAnew(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	leave(t, tab, id)
	k.finish <- "old"
	must(t, tab.Update(t.Context(), id, "y"))
	ended := run1(t, tab, id)
	k.finish <- "hello"
	if err := <-ended; err != nil || k.runs() != 2 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

// A cell that the page refused to change runs on, and the next call waits for it.
func TestRefusedChangeKeepsTheRun(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{Answer: func(tool string, _ json.RawMessage) (string, bool) {
		return "Error: the notebook is read-only", tool == toolUpdate || tool == toolDelete
	}})
	leave(t, tab, id)
	var refused *ToolError
	if err := tab.Update(t.Context(), id, "y"); !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	if err := tab.Delete(t.Context(), id); !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	ended := run1(t, tab, id)
	k.finish <- "hello"
	if err := <-ended; err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

// The page gives up a long call while the cell runs on: the run ends when the cell does, with
// what it printed, also if the cell was moved meanwhile.
func TestCallThatThePageGivesUp(t *testing.T) {
	d, tab, k, id := runner(t, standin.Options{CallTimeout: 20 * time.Millisecond})
	if _, err := tab.AddText(t.Context(), 0, "above"); err != nil {
		t.Fatal(err)
	}
	ended := run1(t, tab, id)
	within.Until(t, "the relay looks at the cells", func() bool { return strings.Count(d.tab().Everything(), toolCells) > 6 })
	must(t, tab.Move(t.Context(), id, 0))
	k.finish <- "hello"
	if err := <-ended; err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

func TestCellThatIsDeletedWhileItRuns(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{CallTimeout: 20 * time.Millisecond})
	ended := run1(t, tab, id)
	within.Until(t, "the cell runs", func() bool { return k.runs() == 1 })
	must(t, tab.Delete(t.Context(), id))
	if err := <-ended; !errors.Is(err, errCellGone) {
		t.Errorf("got %v", err)
	}
}

// A cell whose call was given up has ended when it has a number, or shows an error last.
func TestEndOfACell(t *testing.T) {
	one := 1
	for name, test := range map[string]struct {
		cell Cell
		want bool
	}{
		"runs":                 {Cell{}, false},
		"runs, has printed":    {Cell{Outputs: json.RawMessage(`[{"output_type":"stream"}]`)}, false},
		"runs after an error":  {Cell{Outputs: json.RawMessage(`[{"output_type":"error"},{"output_type":"stream"}]`)}, false},
		"unreadable outputs":   {Cell{Outputs: json.RawMessage(`[1]`)}, false},
		"has a number":         {Cell{ExecutionCount: &one}, true},
		"failed":               {Cell{ExecutionCount: &one, Outputs: json.RawMessage(`[{"output_type":"error"}]`)}, true},
		"failed, has no count": {Cell{Outputs: json.RawMessage(`[{"output_type":"stream"},{"output_type":"error"}]`)}, true},
	} {
		if got := ended(&test.cell); got != test.want {
			t.Errorf("%s: ended %t", name, got)
		}
	}
}
