package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a queue on a real kernel; both end with the test.
type bench struct {
	*Queue
	t      testing.TB
	kernel *kernel.Kernel
	stop   func() // ends the queue, then the kernel
	ids    int
}

func start(t testing.TB, s stacks.Stack, cfg Config) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	python, err := kernel.Find(t.Context(), s.Python)
	if err != nil {
		t.Fatal(err)
	}
	k := kernel.New(kernel.Config{Python: python, WorkDir: t.TempDir(), StateDir: t.TempDir(), Environ: os.Environ(), Log: log})
	cfg.Kernel, cfg.Log, cfg.InstanceID = k, log, "this-instance"
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Memory == nil {
		cfg.Memory = func() (uint64, uint64, error) { return 1 << 30, 8 << 30, nil }
	}
	q, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Queue: q, t: t, kernel: k}
	queueCtx, stopQueue := context.WithCancel(context.Background())
	kernelCtx, stopKernel := context.WithCancel(context.Background())
	queueEnd, kernelEnd := make(chan error, 1), make(chan error, 1)
	go func() { kernelEnd <- k.Run(kernelCtx) }()
	go func() { queueEnd <- q.Run(queueCtx) }()
	stopped := false
	b.stop = func() {
		if stopped {
			return
		}
		stopped = true
		stopQueue()
		<-queueEnd
		stopKernel()
		<-kernelEnd
	}
	t.Cleanup(b.stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := k.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) submit(code string, timeout float64) string {
	b.t.Helper()
	b.ids++
	id, err := b.Submit(contract.Submit{RequestID: fmt.Sprint("r", b.ids), Code: code, TimeoutSeconds: timeout})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// settle waits for the end or an input request and returns all events.
func (b *bench) settle(id string) contract.Execution {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	x, err := b.Read(ctx, id, ReadRequest{Wait: time.Minute, MaxBytes: 1 << 30, UntilEnd: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func (b *bench) run(code string) contract.Execution {
	b.t.Helper()
	return b.settle(b.submit(code, 0))
}

// awaitEvent waits until the execution has an event past offset.
func (b *bench) awaitEvent(id string, offset int64) contract.Execution {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	x, err := b.Read(ctx, id, ReadRequest{Offset: offset, Wait: time.Minute})
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func text(x contract.Execution, name string) string {
	var b strings.Builder
	for _, e := range x.Events {
		if e.Type == contract.EventStream && e.Name == name {
			b.WriteString(e.Text)
		}
	}
	return b.String()
}

func wantStatus(t testing.TB, x contract.Execution, status contract.Status) {
	t.Helper()
	if x.Status != status {
		t.Fatalf("status = %s (%s), want %s; error %+v", x.Status, x.Reason, status, x.Error)
	}
}

func TestRunKeepsEveryKindOfOutputInOrder(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		x := q.run("import sys\nfrom IPython.display import display\nprint('a'); print('b', file=sys.stderr)\nh = display({'k': 1}, display_id='d1')\nh.update('new')\nfrom IPython.display import clear_output\nclear_output(wait=True)\n'value'")
		wantStatus(t, x, contract.StatusSucceeded)
		var types []string
		for i, e := range x.Events {
			types = append(types, string(e.Type))
			if e.Offset != int64(i) {
				t.Errorf("event %d has offset %d", i, e.Offset)
			}
		}
		got := strings.Join(types, " ")
		if !strings.HasSuffix(got, "display_data update_display_data clear_output execute_result") {
			t.Errorf("events: %s", got)
		}
		if text(x, contract.Stdout) != "a\n" || text(x, contract.Stderr) != "b\n" || !x.End || x.ExecutionCount != 1 {
			t.Errorf("execution = %+v", x)
		}
	})
}

func TestFailureIsAnEndLikeAnyOther(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		first, second := q.submit("1/0", 0), q.submit("'still runs'", 0)
		x := q.settle(first)
		wantStatus(t, x, contract.StatusFailed)
		if x.Error == nil || x.Error.EName != "ZeroDivisionError" || len(x.Error.Traceback) == 0 {
			t.Errorf("error = %+v", x.Error)
		}
		wantStatus(t, q.settle(second), contract.StatusSucceeded)
	})
}

func TestSameRequestIDRunsOnce(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	q.run("n = 0")
	s := contract.Submit{RequestID: "again", Code: "n += 1"}
	first, err := q.Submit(s)
	if err != nil {
		t.Fatal(err)
	}
	q.settle(first)
	second, err := q.Submit(s)
	if err != nil || first != second {
		t.Errorf("second submit: %q, %v; first %q", second, err, first)
	}
	s.Code = "n += 2"
	if _, err := q.Submit(s); !errors.Is(err, ErrConflict) {
		t.Errorf("other code under the same id: %v", err)
	}
	if got := text(q.run("print(n)"), contract.Stdout); got != "1\n" {
		t.Errorf("n = %s", got)
	}
}

func TestSubmitIsRefusedForAReason(t *testing.T) {
	low := false
	q := start(t, stacks.Old(t), Config{
		Limits: Limits{Queue: 2},
		Memory: func() (uint64, uint64, error) {
			if low {
				return 0, 400 << 20, nil
			}
			return 0, 8 << 30, nil
		},
	})
	if _, err := q.Submit(contract.Submit{RequestID: "x", Code: "1", ExpectedInstanceID: "another"}); !errors.Is(err, ErrNewInstance) {
		t.Errorf("another instance: %v", err)
	}
	low = true
	if _, err := q.Submit(contract.Submit{RequestID: "x", Code: "1"}); !errors.Is(err, ErrLowMemory) {
		t.Errorf("low memory: %v", err)
	}
	low = false
	holder := q.submit("input()", 0)
	wantStatus(t, q.settle(holder), contract.StatusWaitingForInput)
	first, second := q.submit("1", 0), q.submit("2", 0)
	if _, err := q.Submit(contract.Submit{RequestID: "x", Code: "3"}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("full queue: %v", err)
	}
	x, err := q.Read(t.Context(), second, ReadRequest{})
	if err != nil || x.QueuePosition != 2 {
		t.Errorf("position = %d, %v", x.QueuePosition, err)
	}
	if x, err = q.Interrupt(t.Context(), first); err != nil || x.Status != contract.StatusCancelled {
		t.Errorf("cancel: %+v, %v", x, err)
	}
	if err := q.Input(t.Context(), holder, "done"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(second), contract.StatusSucceeded)
	if _, err := q.Interrupt(t.Context(), second); !errors.Is(err, ErrFinished) {
		t.Errorf("interrupting what has finished: %v", err)
	}
	if err := q.Input(t.Context(), second, ""); !errors.Is(err, ErrFinished) {
		t.Errorf("input to what has finished: %v", err)
	}
}

func TestDeadlineInterruptsAndKeepsVariables(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		x := q.settle(q.submit("kept = 5\nwhile True: pass", 0.3))
		wantStatus(t, x, contract.StatusTimedOut)
		if took := x.FinishedAt.Sub(*x.StartedAt); took < 300*time.Millisecond || took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if got := text(q.run("print(kept)"), contract.Stdout); got != "5\n" {
			t.Errorf("kept = %q", got)
		}
	})
}

func TestDeadlineIsPausedWhileWaitingForInput(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	q.run("'warm'")
	id := q.submit("x = input('? ')\nprint(x)", 2)
	x := q.settle(id)
	wantStatus(t, x, contract.StatusWaitingForInput)
	if last := x.Events[len(x.Events)-1]; last.Type != contract.EventInputRequest || last.Prompt != "? " {
		t.Errorf("last event = %+v", last)
	}
	// Waits past the deadline for something that does not come.
	if x = q.awaitQuiet(id, x.NextOffset, 2500*time.Millisecond); x.Status != contract.StatusWaitingForInput {
		t.Fatalf("status = %s", x.Status)
	}
	if err := q.Input(t.Context(), id, "late"); err != nil {
		t.Fatal(err)
	}
	x = q.settle(id)
	wantStatus(t, x, contract.StatusSucceeded)
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("stdout = %q", text(x, contract.Stdout))
	}
}

func (b *bench) awaitQuiet(id string, offset int64, d time.Duration) contract.Execution {
	b.t.Helper()
	x, err := b.Read(b.t.Context(), id, ReadRequest{Offset: offset, Wait: d})
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func TestCodeThatDoesNotYieldIsSaidSo(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	id := q.submit("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(.1)", 0.3)
	waiting := q.submit("'after'", 0)
	x := q.settle(id)
	wantStatus(t, x, contract.StatusTimedOut)
	if !strings.Contains(x.Reason, "restart_kernel") {
		t.Errorf("reason = %q", x.Reason)
	}
	if err := q.Hold(t.Context(), func(context.Context, *kernel.Life) error { return nil }); !errors.Is(err, ErrKernelBusy) {
		t.Errorf("Hold while it still has the kernel: %v", err)
	}
	if err := q.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(waiting), contract.StatusCancelled)
	wantStatus(t, q.run("1"), contract.StatusSucceeded)
}

func TestKernelDeathEndsTheRunAndTheQueue(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		first := q.run("1")
		dying := q.submit("print('before', flush=True)\nimport os, time\ntime.sleep(.3)\nos.kill(os.getpid(), 9)", 0)
		waiting := q.submit("'never'", 0)
		x := q.settle(dying)
		wantStatus(t, x, contract.StatusKernelDied)
		if !strings.Contains(x.Reason, "SIGKILL") || text(x, contract.Stdout) != "before\n" {
			t.Errorf("reason %q, stdout %q", x.Reason, text(x, contract.Stdout))
		}
		wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		next := q.run("2")
		wantStatus(t, next, contract.StatusSucceeded)
		if next.KernelID == first.KernelID {
			t.Error("the new kernel has the old id")
		}
	})
}

func TestLongPollAnswersWithTheFirstEvent(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	id := q.submit("import time\nprint('one', flush=True)\ninput()", 0)
	x := q.awaitEvent(id, 0)
	if text(x, contract.Stdout) != "one\n" || x.End {
		t.Errorf("first answer = %+v", x)
	}
	if _, err := q.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	x = q.settle(id)
	wantStatus(t, x, contract.StatusInterrupted)
	if _, err := q.Read(t.Context(), id, ReadRequest{Offset: 99}); !errors.Is(err, ErrBadOffset) {
		t.Errorf("offset past the end: %v", err)
	}
	if _, err := q.Read(t.Context(), "nothing", ReadRequest{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown id: %v", err)
	}
}

func TestBigPayloadsBecomeBlobs(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		x := q.run("import os\nfrom IPython.display import display, Image\nraw = b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(100_000)\ndisplay(Image(data=raw, format='png'))\nimport hashlib; print(hashlib.sha256(raw).hexdigest())")
		wantStatus(t, x, contract.StatusSucceeded)
		var digest string
		for _, e := range x.Events {
			if raw, ok := e.Data["image/png"]; ok {
				digest = strings.Split(strings.Split(string(raw), `"sha256":"`)[1], `"`)[0]
			}
		}
		if digest+"\n" != text(x, contract.Stdout) {
			t.Fatalf("blob %q, the kernel says %q", digest, text(x, contract.Stdout))
		}
		f, err := q.Blob(x.ExecutionID, digest)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil || len(data) != 100_008 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		for _, bad := range []string{"../state.ndjson", strings.Repeat("0", 64)} {
			if _, err := q.Blob(x.ExecutionID, bad); !errors.Is(err, ErrNoBlob) {
				t.Errorf("blob %q: %v", bad, err)
			}
		}
	})
}

func TestLateOutputOfAThreadIsKept(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	x := q.run("import threading, time\ndef late():\n  time.sleep(.3)\n  print('late', flush=True)\nthreading.Thread(target=late).start()")
	wantStatus(t, x, contract.StatusSucceeded)
	for x.NextOffset == 0 {
		id := x.ExecutionID
		if err := q.byID[id].waitChange(t); err != nil {
			t.Fatal(err)
		}
		x = q.awaitQuiet(id, 0, 0)
	}
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("late output = %+v", x.Events)
	}
}

func (e *entry) waitChange(t *testing.T) error {
	select {
	case <-e.changes():
		return nil
	case <-time.After(20 * time.Second):
		return errors.New("nothing changed")
	case <-t.Context().Done():
		return t.Context().Err()
	}
}

func TestAnotherExecutorReadsTheOldLog(t *testing.T) {
	dir := t.TempDir()
	q := start(t, stacks.Old(t), Config{Dir: dir})
	done := q.run("print('kept')")
	running := q.submit("print('partly', flush=True)\ninput()", 0)
	q.settle(running)
	queued := q.submit("'never'", 0)
	// What a kill leaves: the files as they are now, a torn line at their ends.
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{running + "/state.ndjson", running + "/events-*.ndjson"} {
		paths, err := filepath.Glob(filepath.Join(copied, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		f, err := os.OpenFile(paths[0], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, `{"offset":77,"ti`)
		f.Close()
	}
	again, err := Open(Config{Kernel: q.kernel, Dir: copied, Log: slog.New(slog.DiscardHandler), Memory: q.cfg.Memory})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]contract.Status{
		done.ExecutionID: contract.StatusSucceeded, running: contract.StatusLost, queued: contract.StatusCancelled,
	} {
		x, err := again.Read(t.Context(), id, ReadRequest{})
		if err != nil || x.Status != want {
			t.Errorf("%s: %s (%v), want %s", id, x.Status, err, want)
		}
		if id == running && text(x, contract.Stdout) != "partly\n" {
			t.Errorf("events before the kill: %+v", x.Events)
		}
	}
	if got := again.List(10); len(got) != 3 || got[0].ExecutionID != queued {
		t.Errorf("list = %+v", got)
	}
	if id, err := again.Submit(contract.Submit{RequestID: "r1", Code: "print('kept')"}); err != nil || id != done.ExecutionID {
		t.Errorf("a retried submit after the restart: %q, %v", id, err)
	}
}

func TestShutdownInterruptsAndCancels(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		running := q.submit("print('on', flush=True)\nwhile True: pass", 0)
		waiting := q.submit("1", 0)
		q.awaitEvent(running, 0)
		began := time.Now()
		q.stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		wantStatus(t, q.settle(running), contract.StatusInterrupted)
		wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		if _, err := q.Submit(contract.Submit{RequestID: "late", Code: "1"}); !errors.Is(err, ErrShuttingDown) {
			t.Errorf("submit after the shutdown: %v", err)
		}
	})
}

func TestFullDiskIsSaidAndTheRunGoesOn(t *testing.T) {
	q := start(t, stacks.Old(t), Config{})
	id := q.submit("print('first', flush=True)\ninput()\nprint('unwritten')\n", 0)
	x := q.settle(id)
	e := q.byID[id]
	e.log.mu.Lock()
	e.log.closeFile()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.log.w = full
	e.log.mu.Unlock()
	if err := q.Input(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	x = q.settle(id)
	wantStatus(t, x, contract.StatusSucceeded)
	if !strings.Contains(x.Reason, "10 bytes") && !strings.Contains(x.Reason, "disk is full") {
		t.Errorf("reason = %q", x.Reason)
	}
}

func TestFloodIsHeardWholeByAReaderThatComesLate(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		x := q.run("for n in range(200_000): print(n)")
		wantStatus(t, x, contract.StatusSucceeded)
		if got := strings.Count(text(x, contract.Stdout), "\n"); got != 200_000 {
			t.Errorf("%d lines", got)
		}
		for _, e := range x.Events {
			if len(e.Text) > contract.MaxStreamEvent {
				t.Errorf("event %d holds %d bytes", e.Offset, len(e.Text))
			}
		}
	})
}
