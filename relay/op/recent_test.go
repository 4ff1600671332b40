package op

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// Two calls with the same code at once are two runs. So are those of other runtimes, codes and
// deadlines.
func TestUnansweredSubmitsAreNotMixedUp(t *testing.T) {
	var u recent[unansweredSubmit, submitted]
	all := []unansweredSubmit{{runtime: "a"}, {runtime: "a"}, {runtime: "b"}, {runtime: "a", code: [32]byte{1}}, {runtime: "a", timeout: 1}}
	for i, s := range all {
		u.add(s, submitted{requestID: strconv.Itoa(i)})
	}
	for i, s := range all {
		if got, want := u.take(s).requestID, strconv.Itoa(i); got != want {
			t.Errorf("%+v has %q, want %q", s, got, want)
		}
	}
}

// Code that may have run on a VM is not sent to the one that replaced it, unless it is asked for anew.
func TestAnUnansweredSubmitIsNotRepeatedOnAnotherVM(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		ran, lost := map[string]bool{}, true
		f.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
			var s contract.Submit
			_ = json.Unmarshal(body, &s)
			ran[s.RequestID] = true
			if lost {
				panic(http.ErrAbortHandler)
			}
			return http.StatusOK, contract.Execution{ExecutionID: "e", Status: contract.StatusSucceeded, End: true}
		})
		for _, want := range []struct {
			code string
			runs int
		}{{"unreachable", 1}, {"new_instance", 1}, {"", 2}} {
			e := h.call("run_code_quick", map[string]any{"code": "post()"}).outcome(t).Error
			if e == nil {
				e = &Problem{}
			}
			if e.Code != want.code || len(ran) != want.runs {
				t.Errorf("the answer is %+v after %d runs, want %+v", e, len(ran), want)
			}
			lost = false
			f.replace("instance-2")
		}
	})
}

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

// laptop is where relays keep what they last saw of each runtime.
func laptop(t *testing.T) runtimes.LastSeen {
	t.Helper()
	store := pairing.Open(t.TempDir())
	return runtimes.LastSeen{Load: store.LastSeen, Save: func(name string, seen pairing.LastSeen) {
		if err := store.SaveLastSeen(name, seen); err != nil {
			t.Error(err)
		}
	}}
}

// newRelay is a new relay process on the laptop.
func newRelay(t *testing.T, f *fakeExecutor, lastSeen runtimes.LastSeen) *host {
	t.Helper()
	runtime := f.runtime(t)
	return startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return runtime, nil }, LastSeen: lastSeen, SaveDir: t.TempDir()})
}

// become makes the fake another VM, or another kernel on the same one.
func (f *fakeExecutor) become(instance, kernel string) {
	f.replace(instance)
	f.answer("GET", contract.PathKernel, contract.Kernel{Status: contract.KernelIdle, KernelID: kernel, Python: "3.12"})
	f.answer("POST", contract.PathKernelRestart, contract.Kernel{Status: contract.KernelIdle, KernelID: kernel})
}

func check(t *testing.T, h *host) string {
	t.Helper()
	r := h.call("check_colab_connection", json.RawMessage(`{}`))
	if r.IsError {
		t.Fatalf("%s", r.Structured)
	}
	return r.outcome(t).Warning
}

func TestANewRelayProcessWarnsThatVariablesAreGone(t *testing.T) {
	f, lastSeen := newFake(t), laptop(t)
	if w := check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("the first time: %q", w)
	}
	if w := check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("nothing changed: %q", w)
	}
	f.become("instance-1", "kernel-2")
	h := newRelay(t, f, lastSeen)
	if w := check(t, h); !strings.Contains(w, "This is a new kernel: the variables") {
		t.Errorf("a new kernel: %q", w)
	}
	if w := check(t, h); w != "" {
		t.Errorf("warned twice: %q", w)
	}
	f.become("instance-2", "kernel-3")
	if w := check(t, newRelay(t, f, lastSeen)); !strings.Contains(w, "on a new VM") || !strings.Contains(w, "files") {
		t.Errorf("a new VM: %q", w)
	}
	if w := check(t, h); !strings.Contains(w, "on a new VM") {
		t.Errorf("a new VM, to a relay that has run all the time: %q", w)
	}
}

// A kernel that was asked for is no news, to the next relay neither.
func TestARestartThatWasAskedForIsNoNews(t *testing.T) {
	f, lastSeen := newFake(t), laptop(t)
	h := newRelay(t, f, lastSeen)
	check(t, h)
	f.become("instance-1", "kernel-2")
	if r := h.call("restart_kernel", json.RawMessage(`{}`)); r.IsError || r.outcome(t).Warning != "" {
		t.Errorf("%s", r.Structured)
	}
	if w := check(t, h) + check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("warned %q", w)
	}
}

// A call that began while the new kernel started could not tell, so the call that reads the
// run does.
func TestReadingARunTellsOfItsNewKernel(t *testing.T) {
	for _, status := range []contract.Status{contract.StatusRunning, contract.StatusSucceeded} {
		f := newFake(t)
		run := f.run("x-1")
		run.set(func(e *contract.Execution) { e.Status, e.KernelID = contract.StatusSucceeded, "kernel-1" })
		f.become("instance-1", "kernel-1")
		h := newRelay(t, f, laptop(t))
		check(t, h)
		read := func(id string) string {
			r := h.call("get_execution", json.RawMessage(`{"execution_id":"`+id+`"}`))
			if r.IsError {
				t.Fatalf("%s", r.Structured)
			}
			return r.outcome(t).Warning
		}
		if w := read("x-1"); w != "" {
			t.Errorf("a run of the same kernel: %q", w)
		}
		f.answer("GET", contract.PathKernel, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-2"})
		f.run("x-2").set(func(e *contract.Execution) { e.Status, e.KernelID = status, "kernel-2" })
		if w := read("x-2"); !strings.Contains(w, "This is a new kernel: the variables") {
			t.Errorf("the first %s run of the new kernel: %q", status, w)
		}
		if w := read("x-2") + read("x-1") + check(t, h); w != "" {
			t.Errorf("then: %q", w)
		}
	}
}

// endingIn makes the fake's run e1 tell that many minutes, nil for nothing known.
func endingIn(f *fakeExecutor, left *float64) {
	now := time.Now()
	f.answer("GET", contract.PathExecutions+"/e1", contract.Execution{
		ExecutionID: "e1", Status: contract.StatusSucceeded, StartedAt: &now, FinishedAt: &now, End: true, SessionMinutesLeft: left,
	})
}

func TestTheVMsEndIsReportedWhenItIsNear(t *testing.T) {
	for _, c := range []struct {
		left *float64
		want string // in the first warning; empty for none
		next bool   // also in the next answer
	}{
		{nil, "", false},
		{new(300.0), "", false},
		{new(30.0), "", false},
		{new(29.4), "about 30 minutes: call save_kernel_state", false},
		{new(0.2), "about 1 minute:", false},
		{new(0.0), "executor is shutting down", true},
		{new(-3.0), "executor is shutting down", true},
	} {
		h, f := serveFake(t)
		endingIn(f, c.left)
		args := map[string]any{"execution_id": "e1"}
		first, second := h.call("get_execution", args).outcome(t).Warning, h.call("get_execution", args).outcome(t).Warning
		if (c.want == "") != (first == "") || !strings.Contains(first, c.want) {
			t.Errorf("%v minutes left: warned %q, want %q", c.left, first, c.want)
		}
		if c.next != (second != "") {
			t.Errorf("%v minutes left: the second answer warns %q", c.left, second)
		}
	}
}

func TestCheckAndProbeTellWhatIsKnownOfTheEnd(t *testing.T) {
	h, f := serveFake(t)
	check := func() (Connection, string) {
		t.Helper()
		r := h.call("check_colab_connection", map[string]any{})
		return decode[Connection](t, r.Structured), r.outcome(t).Warning
	}
	if got, warning := check(); got.SessionLeft != nil || warning != "" {
		t.Errorf("before anything is known: %+v %q", got, warning)
	}
	f.answer("GET", contract.PathProbe, contract.Probe{Limits: contract.Limits{SessionMinutesLeft: new(0.0)}})
	if w := h.call("probe_colab_environment", map[string]any{}).outcome(t).Warning; !strings.Contains(w, "about 1 minute:") {
		t.Errorf("a VM past its published limit: %q", w)
	}
	if got, warning := check(); got.SessionLeft == nil || *got.SessionLeft != 0 || warning != "" {
		t.Errorf("after the probe: %+v %q", got, warning)
	}
	endingIn(f, new(90.0))
	h.call("get_execution", map[string]any{"execution_id": "e1"})
	if got, _ := check(); got.SessionLeft == nil || *got.SessionLeft < 60 || *got.SessionLeft > 90 {
		t.Errorf("after a run: %+v", got)
	}
	f.replace("instance-2")
	f.on("GET", contract.PathKernel, func(*http.Request, []byte) (int, any) { return http.StatusOK, contract.Kernel{KernelID: "kernel-2"} })
	if got, _ := check(); got.SessionLeft != nil {
		t.Errorf("a new VM has the old one's end: %+v", *got.SessionLeft)
	}
}
