package execution

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func pastNumber(n int) pastRun {
	at := time.Unix(int64(n), 0).UTC()
	return pastRun{
		ID: fmt.Sprintf("0198c0de-0000-7000-8000-%012d", n), RequestID: fmt.Sprintf("request-%d", n),
		Code: "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU", Status: contract.StatusSucceeded,
		KernelID: "0198c0de-0000-7000-8000-000000000000", Created: at, Started: &at, Finished: &at, Timeout: 600, Next: 3,
	}
}

func openPastAt(t *testing.T, dir string, most int) *past {
	t.Helper()
	p, err := openPast(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// At the default bound 300,000 ids are known, in a few MB; one past it the older half
// is dropped, and a new executor knows as many.
func TestHundredsOfThousandsOfPastRunsAreKnownInAFewMegabytes(t *testing.T) {
	dir, most := t.TempDir(), DefaultLimits.Past
	before := heap()
	p := openPastAt(t, dir, most)
	for n := range 2 * most {
		if err := p.add(pastNumber(n)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("%d ids take %d KiB of memory", 2*most, grown>>10)
	}
	check := func(p *past, n int, want bool) {
		t.Helper()
		byRequest, ok := p.byRequest(fmt.Sprintf("request-%d", n))
		byID, known := p.byID(pastNumber(n).ID)
		if ok != want || known != want || want && (byRequest.ID != pastNumber(n).ID || byID.RequestID != byRequest.RequestID || byID.Next != 3) {
			t.Errorf("run %d: %+v %v, %+v %v; want %v", n, byRequest, ok, byID, known, want)
		}
	}
	for _, n := range []int{0, 1, most - 1, most, 2*most - 1} {
		check(p, n, true)
	}
	check(p, 2*most, false)
	if err := p.add(pastNumber(2 * most)); err != nil {
		t.Fatal(err)
	}
	again := openPastAt(t, dir, most)
	for n, want := range map[int]bool{0: false, most - 1: false, most: true, 2 * most: true, 2*most + 1: false} {
		check(p, n, want)
		check(again, n, want)
	}
}

// A kill at any byte leaves all that was written before.
func TestRecordOfPastRunsSurvivesAKillAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	p := openPastAt(t, dir, 100)
	for n := range 3 {
		if err := p.add(pastNumber(n)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, pastFile))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		torn := t.TempDir()
		if err := os.WriteFile(filepath.Join(torn, pastFile), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := openPast(torn, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.add(pastNumber(7)); err != nil {
			t.Fatal(err)
		}
		complete := cut * 3 / len(whole)
		for n := range 3 {
			if _, ok := p.byRequest(fmt.Sprintf("request-%d", n)); ok != (n < complete) {
				t.Errorf("cut at %d of %d: run %d known: %v", cut, len(whole), n, ok)
			}
		}
		if r, ok := p.byRequest("request-7"); !ok || r.ID != pastNumber(7).ID {
			t.Errorf("cut at %d: the next record is not there", cut)
		}
		p.close()
	}
}

func TestDeletedRecordOfPastRunsComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := openPastAt(t, dir, 2)
	for n := range 3 {
		if err := p.add(pastNumber(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := p.add(pastNumber(3)); err != nil {
		t.Fatal(err)
	}
	again := openPastAt(t, dir, 2)
	for n := range 4 {
		if _, ok := again.byID(pastNumber(n).ID); !ok {
			t.Errorf("run %d is not known", n)
		}
	}
}

func TestForgottenRequestIDStillRunsNothing(t *testing.T) {
	const kept = 20
	dir := t.TempDir()
	q := start(t, stacks.Old(t), Config{Dir: dir, Limits: Limits{Kept: kept}})
	q.run("n = 0")
	first := contract.Submit{RequestID: "the-first", Code: "n += 1\nprint('ran')"}
	id, err := q.Submit(first)
	if err != nil {
		t.Fatal(err)
	}
	q.settle(id)
	for range kept + 5 {
		q.run("pass")
	}
	check := func(q *Queue, when string) {
		t.Helper()
		again, err := q.Submit(first)
		if err != nil || again != id {
			t.Fatalf("%s: %q, %v; want %q", when, again, err, id)
		}
		x, err := q.Read(t.Context(), id, ReadRequest{})
		if err != nil || x.Status != contract.StatusSucceeded || x.FinishedAt == nil || !x.End || x.RequestID != first.RequestID ||
			len(x.Events) != 1 || x.Events[0].Type != contract.EventGap || x.Events[0].Bytes == 0 || x.NextOffset != 1 || x.Reason == "" {
			t.Errorf("%s: %+v, %v", when, x, err)
		}
		other := first
		other.Code = "n += 2"
		if _, err := q.Submit(other); !errors.Is(err, ErrConflict) {
			t.Errorf("%s, other code: %v", when, err)
		}
		if _, err := q.Interrupt(t.Context(), id); !errors.Is(err, ErrFinished) && !errors.Is(err, ErrShuttingDown) {
			t.Errorf("%s, interrupting it: %v", when, err)
		}
		if _, err := os.Stat(filepath.Join(dir, id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its folder: %v", when, err)
		}
	}
	check(q.Queue, "at once")
	if got := text(q.run("print(n)"), contract.Stdout); got != "1\n" {
		t.Errorf("n = %s", got)
	}
	q.stop()
	check(reopened(t, q, dir), "after a restart")
}

// reopened is the queue of another executor on the same folder.
func reopened(t *testing.T, q *bench, dir string) *Queue {
	t.Helper()
	cfg := Config{Kernel: q.kernel, Dir: dir, Log: slog.New(slog.DiscardHandler), Memory: q.cfg.Memory, Limits: q.cfg.Limits}
	again, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stopped := again.stopped
	close(stopped) // nobody runs it
	return again
}

func TestTheRelaysOwnRunsPushOutNoneOfTheUsers(t *testing.T) {
	q := start(t, stacks.Old(t), Config{Limits: Limits{Kept: 10, StateSize: 600_000}})
	mine := q.run("print('x' * 100_000)")
	for n := range 30 {
		id, err := q.Submit(contract.Submit{RequestID: fmt.Sprint("own-", n), Code: "print('y' * 100_000)", Unstored: true})
		if err != nil {
			t.Fatal(err)
		}
		q.settle(id)
	}
	if x := q.settle(mine.ExecutionID); len(text(x, contract.Stdout)) != 100_001 {
		t.Errorf("of the user's output %d bytes are left", len(text(x, contract.Stdout)))
	}
	if n := len(q.List(100)); n > 12 {
		t.Errorf("%d executions are kept", n)
	}
	for n := range 30 {
		if _, err := q.Submit(contract.Submit{RequestID: fmt.Sprint("own-", n), Code: "other", Unstored: true}); !errors.Is(err, ErrConflict) {
			t.Errorf("own run %d: %v", n, err)
		}
	}
}
