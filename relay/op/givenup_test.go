package op

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// list makes the fake list one run for each request_id that was submitted, all in the state of r.
func (f *fakeExecutor) list(r *fakeRun) {
	f.on("GET", contract.PathExecutions, func(*http.Request, []byte) (int, any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var all []contract.Execution
		for _, s := range r.submits {
			e := r.exec
			e.RequestID = s.RequestID
			all = append(all, e)
		}
		return http.StatusOK, contract.ExecutionList{Executions: all}
	})
}

// giveUp begins a call and cancels it after some time.
func (h *host) giveUp(after time.Duration, name string, args any) {
	p := h.begin(name, args, nil)
	<-time.After(after) // on the test's clock
	p.cancel()
}

// distinct is the number of runs that the submits of r are.
func (r *fakeRun) distinct() int {
	ids := map[string]bool{}
	for _, s := range r.submitted() {
		ids[s.RequestID] = true
	}
	return len(ids)
}

// openai-agents gives up after 5 s and tells its model to try again, which submitted a run three times.
func TestAClientThatGivesUpEarlySubmitsARunOnce(t *testing.T) {
	onOwnClock(t, 45*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		f.list(run)
		train := map[string]any{"code": "train()", "timeout_seconds": 900}
		h.giveUp(5*time.Second, "run_code_long", train)

		const left = "An earlier call was given up after 5 s; its run e1 is still running; do not submit it again. Its output: get_execution(execution_id=\"e1\", wait_seconds=45, runtime_name=\"test\")\n"
		if text := h.call("check_colab_connection", map[string]any{}).Content[0].Text; !strings.HasPrefix(text, left) {
			t.Errorf("the next answer: %q", text)
		}
		if text := h.call("check_colab_connection", map[string]any{}).Content[0].Text; strings.Contains(text, "given up") {
			t.Errorf("it is said twice: %q", text)
		}
		h.giveUp(5200*time.Millisecond, "run_code_long", train) // which is about the same time, so it is a limit
		for _, again := range []map[string]any{train, {"code": "train()"}} {
			began := time.Now()
			r := h.call("run_code_long", again)
			text := r.Content[0].Text
			if took := time.Since(began); took < 3900*time.Millisecond || took > 4100*time.Millisecond {
				t.Errorf("the answer came after %s, the limit is 5 s", took)
			}
			if r.run(t).ExecutionID != "e1" || r.run(t).Status != "running" || !strings.HasPrefix(text, "Warning: An earlier call with this code was given up after 5 s. This is its run: nothing was submitted. To run the code once more on purpose, change it") {
				t.Errorf("%q", text)
			}
		}
		if text := h.call("get_execution", map[string]any{"execution_id": "e1", "wait_seconds": 45}).Content[0].Text; !strings.HasPrefix(text, "Status: running") || !strings.Contains(text, "wait_seconds=4)") {
			t.Errorf("after an answer with the run: %q", text)
		}
		if n := run.distinct(); n != 1 {
			t.Errorf("%d runs of one code", n)
		}
		h.call("run_code_long", map[string]any{"code": "train() # once more"})
		run.end(contract.StatusSucceeded)
		h.call("run_code_long", train)
		if n := run.distinct(); n != 3 {
			t.Errorf("%d runs after other code, and after the end of the first", n)
		}

		run.set(func(e *contract.Execution) { e.Status = contract.StatusRunning })
		h.giveUp(3*time.Second, "run_code_quick", map[string]any{"code": "other()"})
		f.on("GET", contract.PathExecutions, func(*http.Request, []byte) (int, any) { panic(http.ErrAbortHandler) })
		if text := h.call("check_colab_connection", map[string]any{}).Content[0].Text; !strings.HasPrefix(text, "An earlier call was given up after 3 s; its run may still be running; do not submit it again: list_executions shows it under request_id ") {
			t.Errorf("%q", text)
		}
	})
}

// Two calls with the same code are two runs, unless one was given up.
func TestTheSameCodeTwiceIsTwoRunsWithoutACallThatWasGivenUp(t *testing.T) {
	onOwnClock(t, 4*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		f.list(run)
		h.giveUp(3*time.Second, "get_execution", map[string]any{"execution_id": "e1", "wait_seconds": 60})
		for range 2 {
			if r := h.call("run_code_long", map[string]any{"code": "x"}); r.outcome(t).Warning != "" || strings.Contains(r.Content[0].Text, "given up") {
				t.Errorf("%s", r.Structured)
			}
		}
		if n := run.distinct(); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

// Some clients start a relay for every call, and end it at their limit without a cancellation.
func TestARunIsRememberedForTheNextRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		rt := directly(t, f.secret, f)
		cfg := Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, CheckpointDir: t.TempDir(), Hold: time.Minute, Version: "test"}
		run := f.run("e1")
		f.list(run)
		for range 2 {
			h := startHost(t, cfg)
			p := h.begin("run_code_quick", map[string]any{"code": "x"}, nil)
			<-time.After(30 * time.Second)
			p.end()
			synctest.Wait()
		}
		h, began := startHost(t, cfg), time.Now()
		text := h.call("get_execution", map[string]any{"execution_id": "e1", "wait_seconds": 60}).Content[0].Text
		if took := time.Since(began); took != 29*time.Second || !strings.HasPrefix(text, "An earlier call was given up after 30 s; its run e1 is still running") || strings.Count(text, "given up") != 1 {
			t.Errorf("after %s: %s", took, text)
		}
		if n := run.distinct(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestALimitIsLearntFromTwoLikeCancellationsOfOneClient(t *testing.T) {
	const s = time.Second
	for want, calls := range map[time.Duration][]givenUpCall{
		0:                   {{Client: "a", After: 5 * s}},
		time.Nanosecond:     {{Client: "a", After: 5 * s}, {Client: "b", After: 5 * s}},
		2 * time.Nanosecond: {{Client: "a", After: 2900 * time.Millisecond}, {Client: "a", After: 2900 * time.Millisecond}},
		3 * time.Nanosecond: {{Client: "a", After: 5 * s}, {Client: "a", After: 5600 * time.Millisecond}},
		5 * s:               {{Client: "a", After: 5 * s}, {Client: "a", After: 30 * s}, {Client: "a", After: 5500 * time.Millisecond}},
		3 * s:               {{Client: "a", After: 5 * s}, {Client: "a", After: 5 * s}, {Client: "a", After: 3 * s}, {Client: "a", After: 3 * s}},
	} {
		g := &givenUpCalls{}
		for _, c := range calls {
			c.At = time.Now()
			_ = g.use(true, func() { g.calls = append(g.calls, c) })
		}
		if got := g.limit("a"); got != want.Truncate(s) {
			t.Errorf("%v: %s", calls, got)
		}
	}
}

// What a client can make the relay remember is bounded.
func TestTheCallsThatWereGivenUpAreBounded(t *testing.T) {
	dir := t.TempDir()
	r := New(Config{CheckpointDir: dir})
	for i := range 2 * maxGivenUp {
		r.gaveUp(fmt.Sprintf("%d %s", i, strings.Repeat("x", 100)), time.Second, true, &givenUpCall{Runtime: "test", Code: codeSum(strings.Repeat("x", i)), RequestID: fmt.Sprint(i)})
	}
	files, size := 0, int64(0)
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if info, err := d.Info(); err == nil && !d.IsDir() {
			files, size = files+1, size+info.Size()
		}
		return err
	})
	if len(r.givenUp.calls) != maxGivenUp || files != 1 || size > 32<<10 {
		t.Errorf("%d calls, %d files of %d bytes", len(r.givenUp.calls), files, size)
	}
}
