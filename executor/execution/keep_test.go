package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestBigPayloadsBecomeBlobs(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		x := q.run("import os\nfrom IPython.display import display, Image\nraw = b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(100_000)\ndisplay(Image(data=raw, format='png'))\nimport hashlib; print(hashlib.sha256(raw).hexdigest())")
		wantStatus(t, x, contract.StatusSucceeded)
		var ref contract.BlobRef
		for _, e := range x.Events {
			if raw, ok := e.Data["image/png"]; ok {
				if err := json.Unmarshal(raw, &ref); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := strings.TrimSpace(text(x, contract.Stdout)); ref.Blob.Number != 1 || ref.Blob.SHA256 != want {
			t.Fatalf("blob %+v, want 1 with %q", ref.Blob, want)
		}
		f, err := q.journal.Blob(x.ExecutionID, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil || len(data) != 100_008 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		if _, err := q.journal.Blob(x.ExecutionID, 2); !errors.Is(err, journal.ErrNoBlob) {
			t.Errorf("blob 2: %v", err)
		}
	})
}

func TestLateOutputOfAThreadIsKept(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{ownKernel: true})
	x := q.run("import threading, time\ndef late():\n  time.sleep(.3)\n  print('late', flush=True)\nthreading.Thread(target=late).start()")
	wantStatus(t, x, contract.StatusSucceeded)
	for limit := time.After(20 * time.Second); x.NextOffset == 0; x = read(t, q.journal, x.ExecutionID) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatal("the late output did not arrive")
		}
	}
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("late output = %+v", x.Events)
	}
}

func TestTheNextExecutorReadsTheJournal(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	done := q.run("print('kept')")
	running := q.submit("print('partly', flush=True)\ninput()", 0)
	q.settle(running)
	queued := q.submit("'never'", 0)
	// A kill leaves the files as they are, with a torn line at their ends.
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
	again := reopened(t, copied)
	for id, want := range map[string]contract.Status{
		done.ExecutionID: contract.StatusSucceeded, running: contract.StatusLost, queued: contract.StatusCancelled,
	} {
		x := read(t, again, id)
		wantStatus(t, x, want)
		if id == running && text(x, contract.Stdout) != "partly\n" {
			t.Errorf("events before the kill: %+v", x.Events)
		}
	}
	if got := again.List(10); len(got) != 3 || got[0].ExecutionID != queued {
		t.Errorf("list = %+v", got)
	}
	if id, err := again.Submitted(contract.Submit{RequestID: "r1", Code: "print('kept')"}); err != nil || id != done.ExecutionID {
		t.Errorf("a retried submit after the restart: %q, %v", id, err)
	}
}

func TestShutdownInterruptsAndCancels(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		running := q.submit("print('on', flush=True)\nwhile True: pass", 0)
		waiting := q.submit("1", 0)
		q.awaitEvent(running, 0)
		q.stop()
		wantStatus(t, q.settle(running), contract.StatusInterrupted)
		wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		if _, err := q.Submit("", contract.Submit{RequestID: "late", Code: "1"}); !errors.Is(err, ErrShuttingDown) {
			t.Errorf("submit after the shutdown: %v", err)
		}
	})
}

func TestFloodIsCompleteForALateReader(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		x := q.run("for n in range(50_000): print(n)")
		wantStatus(t, x, contract.StatusSucceeded)
		if got := strings.Count(text(x, contract.Stdout), "\n"); got != 50_000 {
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
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		q.run("kept = 1")
		// ipykernel can't encode a lone surrogate and sends no reply.
		x := q.run("raise ValueError(chr(0xd800))")
		wantStatus(t, x, contract.StatusFailed)
		if got := text(q.run("print(kept)"), contract.Stdout); got != "1\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}

// The kernel flushes sys.stdout and sys.stderr after each run, and sends no end of the run if
// that fails.
func TestAStreamThatCannotBeFlushedIsSetBack(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		for _, code := range []string{
			"with open('log', 'w') as sys.stdout: print('x')",
			"sys.stdout = None",
			"del sys.stderr",
			"class Broken:\n    def flush(self): raise OSError('x' * 1000)\nsys.stdout = sys.stderr = Broken()",
			"sys.stdout = None\nraise KeyError('x')",
		} {
			x := q.run("import sys\n" + code)
			if !x.Status.Finished() || !strings.Contains(text(x, contract.Stderr), "was reset") {
				t.Errorf("%s: %s, %q", code, x.Status, text(x, contract.Stderr))
			}
			if got := text(q.run("print('next')"), contract.Stdout); got != "next\n" {
				t.Errorf("after %s: %q", code, got)
			}
		}
		kept := q.run("import io, sys\nsys.stdout = io.StringIO()\nprint('kept')")
		if got := text(q.run("print(sys.stdout.getvalue(), file=sys.stderr)"), contract.Stderr); text(kept, contract.Stderr) != "" || got != "kept\n\n" {
			t.Errorf("a stream of the user's: %q, %q", text(kept, contract.Stderr), got)
		}
	})
}

// An interrupt after the last line of the code, but before the kernel has sent its reply, ends
// the reply too.
func TestAnInterruptThatTakesTheReplyIsAnInterrupt(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		id := q.submit(`import time
kept, kernel = 1, get_ipython().kernel
finish = kernel.finish_metadata
def slow(*args):
    kernel.finish_metadata = finish
    print('the code has ended', flush=True)
    time.sleep(60)
    return finish(*args)
kernel.finish_metadata = slow`, 0)
		q.awaitEvent(id, 0)
		if _, err := q.Interrupt(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if x := q.settle(id); x.Status != contract.StatusInterrupted || x.Reason != causeAsked.reason() {
			t.Errorf("the run is %s: %s", x.Status, x.Reason)
		}
		if got := text(q.run("print(kept)"), contract.Stdout); got != "1\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}

func TestPagerOutputIsKept(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		x := q.run("len?")
		wantStatus(t, x, contract.StatusSucceeded)
		if len(x.Events) != 1 || !strings.Contains(string(x.Events[0].Data["text/plain"]), "number of items") {
			t.Errorf("events = %+v", x.Events)
		}
	})
}

func TestRunWithADamagedStateIsLostIfItHadStarted(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	x := q.run("print('it ran')")
	q.stop()
	path := filepath.Join(dir, x.ExecutionID, "state.ndjson")
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	queued, _, _ := strings.Cut(string(state), "\n")
	if err := os.WriteFile(path, []byte(queued+"\n{\"execution"), 0o600); err != nil {
		t.Fatal(err)
	}
	after := read(t, reopened(t, dir), x.ExecutionID)
	wantStatus(t, after, contract.StatusLost)
	if text(after, contract.Stdout) != "it ran\n" {
		t.Errorf("after the damage: %+v", after)
	}
}
