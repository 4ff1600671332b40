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
	if err != nil {
		t.Fatal(err)
	}
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

func TestRunReturnsTheOutputs(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	ended := run1(t, tab, id)
	k.finish <- "hello"
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ended = run1(t, tab, id) // a later one runs the cell again
	k.finish <- "hello again"
	if err := <-ended; err != nil || k.runs() != 2 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

func TestSecondRunJoinsTheFirst(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	first := run1(t, tab, id)
	within.Until(t, "the cell runs", func() bool { return k.runs() == 1 })
	second := run1(t, tab, id)
	within.Until(t, "two callers wait", func() bool {
		tab.runs.mu.Lock()
		defer tab.runs.mu.Unlock()
		return tab.runs.known[id].waiting == 2
	})
	k.finish <- "hello"
	if err := errors.Join(<-first, <-second); err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
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
	within.Until(t, "the run has ended", func() bool {
		tab.runs.mu.Lock()
		defer tab.runs.mu.Unlock()
		return !tab.runs.known[id].ended.IsZero()
	})
	if err := <-run1(t, tab, id); err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
	leave(t, tab, id) // this end was seen: the cell runs again
	within.Until(t, "the cell runs again", func() bool { return k.runs() == 2 })
	k.finish <- "bye"
}

// A caller that left gets the end also if another caller saw it first.
func TestEndThatAnotherCallerSaw(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	leave(t, tab, id)
	leave(t, tab, id) // comes back, and leaves again
	first := run1(t, tab, id)
	within.Until(t, "one waits", func() bool {
		tab.runs.mu.Lock()
		defer tab.runs.mu.Unlock()
		return tab.runs.known[id].waiting == 1
	})
	tab.runs.mu.Lock()
	tab.runs.known[id].left++ // a second caller that left
	tab.runs.mu.Unlock()
	k.finish <- "hello"
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := <-run1(t, tab, id); err != nil || k.runs() != 1 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

func TestUnreadEndExpires(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	tab.timing.unread = 0
	leave(t, tab, id)
	k.finish <- "old"
	within.Until(t, "the run has ended", func() bool {
		tab.runs.mu.Lock()
		defer tab.runs.mu.Unlock()
		return !tab.runs.known[id].ended.IsZero()
	})
	ended := run1(t, tab, id)
	k.finish <- "hello"
	if err := <-ended; err != nil || k.runs() != 2 {
		t.Errorf("%v after %d runs", err, k.runs())
	}
}

// A cell with another text is another run.
func TestUpdateStartsAnew(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{})
	leave(t, tab, id)
	k.finish <- "old"
	if err := tab.Update(t.Context(), id, "y"); err != nil {
		t.Fatal(err)
	}
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
	for name, move := range map[string]bool{"stays": false, "moves": true} {
		t.Run(name, func(t *testing.T) {
			d, tab, k, id := runner(t, standin.Options{CallTimeout: 20 * time.Millisecond})
			if _, err := tab.AddText(t.Context(), 0, "above"); err != nil {
				t.Fatal(err)
			}
			ended := run1(t, tab, id)
			within.Until(t, "the relay looks at the cells", func() bool { return strings.Count(d.tab().Everything(), toolCells) > 6 })
			if move {
				if err := tab.Move(t.Context(), id, 0); err != nil {
					t.Fatal(err)
				}
			}
			k.finish <- "hello"
			if err := <-ended; err != nil || k.runs() != 1 {
				t.Errorf("%v after %d runs", err, k.runs())
			}
		})
	}
}

func TestCellThatIsDeletedWhileItRuns(t *testing.T) {
	_, tab, k, id := runner(t, standin.Options{CallTimeout: 20 * time.Millisecond})
	ended := run1(t, tab, id)
	within.Until(t, "the cell runs", func() bool { return k.runs() == 1 })
	if err := tab.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errCellGone) {
		t.Errorf("got %v", err)
	}
}

func TestRunThatThePageRefuses(t *testing.T) {
	d := newDesk(t, standin.Options{NoVM: "no GPU is free\x1b[31m"}, quick)
	tab := d.connected()
	_, err := tab.Run(t.Context(), "c1")
	var refused *ToolError
	if !errors.As(err, &refused) || !strings.Contains(refused.Text, "no GPU is free") || strings.Contains(refused.Text, "\x1b") {
		t.Errorf("got %v", err)
	}
}

// Until "Run anyway" was clicked the page answers without outputs.
func TestRunWithoutOutputs(t *testing.T) {
	for text, want := range map[string]string{`{}`: "", ``: "", `{"outputs":null}`: "", `{"outputs":[]}`: "[]"} {
		d := newDesk(t, standin.Options{Answer: func(tool string, _ json.RawMessage) (string, bool) { return text, tool == toolRun }})
		result, err := d.connected().Run(t.Context(), "c1")
		if err != nil || string(result.Outputs) != want {
			t.Errorf("%q: outputs %q, %v", text, result.Outputs, err)
		}
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

// Looks that fail are repeated, and the end of time ends the looking.
func TestLooksThatFail(t *testing.T) {
	looks := 0
	var mu sync.Mutex
	d := newDesk(t, standin.Options{Answer: func(tool string, _ json.RawMessage) (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case tool == toolRun:
			return "Error: timed out after 90s", true
		case tool == toolCells:
			looks++
			return "Error: busy", looks < 10
		}
		return "", false
	}}, quick)
	tab := d.connected()
	if _, err := tab.Run(t.Context(), "no such cell"); !errors.Is(err, errCellGone) {
		t.Errorf("got %v after %d looks", err, looks)
	}
	mu.Lock()
	looks = -1_000_000
	mu.Unlock()
	tab.timing.follow = 100 * time.Millisecond
	if _, err := tab.Run(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("got %v", err)
	}
}

// The runs that nobody comes back for are bounded, and no cell runs beyond the bound.
func TestRunsAreBounded(t *testing.T) {
	var s runs
	end := func(r *run) { r.end(Result{}, nil) }
	for i := range maxRuns {
		r, err := s.join(fmt.Sprint(i), time.Hour, end)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		r.waiting, r.left = 0, 1
		s.mu.Unlock()
	}
	s.goroutines.Wait()
	if _, err := s.join("one more", time.Hour, end); err == nil {
		t.Error("a run beyond the bound began")
	}
	if _, err := s.join("one more", 0, end); err != nil || len(s.known) != 1 {
		t.Errorf("after the others expired: %v, %d known", err, len(s.known))
	}
	s.wait()
	if _, err := s.join("late", time.Hour, end); !errors.Is(err, ErrTabLost) {
		t.Errorf("a run began in a lost tab: %v", err)
	}
}

// A tab that answers nothing holds a bounded number of calls.
func TestPendingCallsAreBounded(t *testing.T) {
	d := newQuietDesk(t)
	p := d.ready(t)
	tab, _ := d.Tab()
	go func() { // reads, so that no call waits for being sent
		for {
			if _, _, err := p.readFrame(); err != nil {
				return
			}
		}
	}()
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range maxPending {
		group.Go(func() {
			if _, err := tab.Cells(ctx, i, i, false); !errors.Is(err, context.Canceled) {
				t.Errorf("a call ended with %v", err)
			}
		})
	}
	within.Until(t, "all calls wait", func() bool {
		tab.wire.mu.Lock()
		defer tab.wire.mu.Unlock()
		return len(tab.wire.pending) == maxPending
	})
	if _, err := tab.Cells(ctx, 0, 0, false); !errors.Is(err, errPending) {
		t.Errorf("a call beyond the bound ended with %v", err)
	}
	cancel()
	group.Wait()
	tab.wire.mu.Lock()
	defer tab.wire.mu.Unlock()
	if n := len(tab.wire.pending); n != 0 {
		t.Errorf("%d calls are remembered", n)
	}
}
