package execution

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestBigPayloadsBecomeBlobs(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

func TestOutputOfAMomentOnAFullDiskIsWrittenLater(t *testing.T) {
	t.Parallel()
	q := start(t, stacks.Old(t), Config{})
	id := q.submit("print('first', flush=True)\ninput()\nprint('unwritten')\n", 0)
	wantStatus(t, q.settle(id), contract.StatusWaitingForInput)
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
	x := q.settle(id)
	wantStatus(t, x, contract.StatusSucceeded)
	if text(x, contract.Stdout) != "first\nunwritten\n" {
		t.Errorf("stdout = %q", text(x, contract.Stdout))
	}
}

func TestFloodIsHeardWholeByAReaderThatComesLate(t *testing.T) {
	t.Parallel()
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

func TestRunWithoutAReplyEndsAndFreesTheKernel(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		q.run("kept = 1")
		// ipykernel can't encode a lone surrogate: it sends no reply at all.
		x := q.run("raise ValueError(chr(0xd800))")
		wantStatus(t, x, contract.StatusFailed)
		if got := text(q.run("print(kept)"), contract.Stdout); got != "1\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}

func TestWhatThePagerShowsIsKept(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := start(t, s, Config{})
		x := q.run("len?")
		wantStatus(t, x, contract.StatusSucceeded)
		if len(x.Events) != 1 || !strings.Contains(string(x.Events[0].Data["text/plain"]), "number of items") {
			t.Errorf("events = %+v", x.Events)
		}
	})
}

func TestDamagedStateOfARunThatBeganIsLostNotNeverRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q := start(t, stacks.Old(t), Config{Dir: dir})
	x := q.run("print('it ran')")
	q.stop()
	path := filepath.Join(dir, x.ExecutionID, stateFile)
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	queued, _, _ := strings.Cut(string(state), "\n")
	if err := os.WriteFile(path, []byte(queued+"\n{\"execution"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Config{Kernel: q.kernel, Dir: dir, Log: slog.New(slog.DiscardHandler), Memory: q.cfg.Memory})
	if err != nil {
		t.Fatal(err)
	}
	after, err := again.Read(t.Context(), x.ExecutionID, ReadRequest{})
	if err != nil || after.Status != contract.StatusLost || text(after, contract.Stdout) != "it ran\n" {
		t.Errorf("after the damage: %+v, %v", after, err)
	}
}
