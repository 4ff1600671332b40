package history

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// folderBytes returns what the folder's files take, in whole blocks.
func folderBytes(t testing.TB, dir string) (total int64, runs int) {
	t.Helper()
	all, total, err := filesByRun(dir)
	must(t, err)
	return total, len(all)
}

func TestALongRunIsCutAtItsBound(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, 1<<20) // 128 KiB a run
	r := s.Record("work")
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning))
	const events = 4000
	for n := range int64(events) {
		r.Answered("vm", answer("e1", contract.StatusRunning, stream(n, fmt.Sprintf("line %d %s", n, strings.Repeat("x", 200)))))
		if n%100 == 0 {
			written(t, s)
		}
	}
	last := answer("e1", contract.StatusSucceeded)
	last.NextOffset = events
	r.Answered("vm", last)
	written(t, s)
	run := whole(t, s, "e1")
	n := len(run.Events) - 1
	if gap := run.Events[n]; n < 200 || gap.Cut != notKept.Cut || gap.Offset != int64(n) || gap.Offset+gap.Events != events || run.Status != contract.StatusSucceeded || run.Complete || run.Lacks() {
		t.Errorf("%d events and the gap %+v, %s", n, gap, run.Status)
	}
	if total, _ := folderBytes(t, dir); total > 128<<10+3*diskBlock {
		t.Errorf("the run takes %d bytes", total)
	}
}

// An executor may send anything within the bounds of package client.
func TestAHostileExecutorFillsNeitherDiskNorMemory(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, 8<<20) // 1 MiB a run
	r := s.Record("work")
	huge := strings.Repeat("x", 5<<18)
	all := []contract.Event{stream(-1, "before the start"), stream(1<<62, "far"), stream(3, huge), {Offset: 1, Type: contract.EventGap, Events: 1 << 62}, {Offset: 2, Type: contract.EventGap, Events: -5}}
	for n := range int64(2000) {
		all = append(all, stream(1_000_000-2*n, "backwards"))
	}
	for n := range int64(10_000) {
		all = append(all, stream(2_000_000+n, ""))
	}
	wild := answer("e1", "no such status", all...)
	wild.Reason, wild.CodePreview = huge, huge
	wild.Error = &contract.ExecutionError{EName: huge, EValue: huge, Traceback: []string{huge}}
	wild.CreatedAt = time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC) // JSON has no such year
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning))
	r.Answered("vm", wild)
	written(t, s)
	for n := range 30 {
		e := answer("e1", contract.Status(fmt.Sprint("status ", n)))
		e.Reason = huge
		r.Answered("vm", e)
		r.Fetched("vm", "e1", contract.Blob{SHA256: fmt.Sprintf("%064d", n)}, make([]byte, 100<<10))
		written(t, s)
	}
	if total, _ := folderBytes(t, dir); total > 2<<20+20*diskBlock {
		t.Errorf("the run takes %d bytes", total)
	}
	run := whole(t, s, "e1")
	kept := run.Events
	if len(kept) < 100 || len(run.Reason) > maxStateText {
		t.Errorf("%d events, a reason of %d bytes", len(kept), len(run.Reason))
	}
	for i := 1; i < len(kept); i++ {
		if kept[i].Offset <= kept[i-1].Offset {
			t.Fatalf("event %d has offset %d after %d", i, kept[i].Offset, kept[i-1].Offset)
		}
	}
}

func prune(dir string, most int64, runs int) error {
	return pruneTo(dir, most, runs, time.Now())
}

func TestTheOldestFinishedRunsAreDeletedFirst(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, DefaultBytes)
	r := s.Record("work")
	r.Submitted("vm", submit("1"), answer("running", contract.StatusRunning))
	for n := range 40 {
		r.Submitted("vm", submit("1"), answer(fmt.Sprintf("e%d", n), contract.StatusSucceeded, stream(0, "x")))
	}
	written(t, s)
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), make([]byte, 1<<20), 0o600)) // not ours

	must(t, os.WriteFile(runPath(dir, keyOf("vm", "remains of a kill")), nil, 0o600))

	must(t, prune(dir, DefaultBytes, 21))
	left, err := s.List()
	if err != nil || len(left) != 20 || left[len(left)-1].ExecutionID != "running" || left[0].ExecutionID != "e39" {
		t.Errorf("%d runs are left, %v", len(left), err)
	}
	must(t, prune(dir, 0, maxRuns)) // unfinished runs are deleted last
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	r.Answered("vm", answer("running", contract.StatusSucceeded, stream(0, "late")))
	written(t, s)
	if _, n := folderBytes(t, dir); n != 0 {
		t.Error("a deleted run came back")
	}
}

func TestTheFolderStaysWithinItsBound(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, 1<<20)
	r := s.Record("work")
	for n := range 400 {
		r.Submitted("vm", submit("1"), answer(fmt.Sprintf("e%d", n), contract.StatusSucceeded, stream(0, strings.Repeat("x", 3000))))
		if n%20 == 0 {
			written(t, s)
		}
	}
	written(t, s)
	if total, n := folderBytes(t, dir); total > (1<<20)*11/10 || n < 100 {
		t.Errorf("%d runs take %d bytes", n, total)
	}
}

// What one VM floods the queue with leaves room for small reports, and counts until it is written.
func TestAFloodOfLargeReportsLeavesRoomForSmallOnes(t *testing.T) {
	s := New(Config{Dir: t.TempDir(), MaxBytes: DefaultBytes})
	s.delay = time.Hour
	flood, usual := s.Record("hostile"), s.Record("work")
	flood.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning))
	for n := range int64(200) {
		flood.Answered("vm", answer("e1", contract.StatusRunning, stream(n, strings.Repeat("x", 1<<20))))
	}
	usual.Submitted("vm", submit("2"), answer("e2", contract.StatusSucceeded, stream(0, "2")))
	if most := int64(forLarge * maxQueuedBytes); s.queue.bytes > most+10_000 {
		t.Errorf("%d bytes wait, over %d", s.queue.bytes, most)
	}
	all := s.queue.reports
	if n := len(all); n == 0 || all[n-1].e.ExecutionID != "e2" {
		t.Errorf("%d reports, without the small one", n)
	}
	s.Close()
}

// files returns the contents of all files in a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		all[e.Name()] = string(text)
	}
	return all
}

// Whatever a VM answers about a run after its end was recorded, the record stays, also where
// another relay has not seen the end.
func TestNothingChangesACompleteRun(t *testing.T) {
	for name, later := range map[string]contract.Execution{
		"another outcome":       answer("e1", contract.StatusFailed, stream(0, "0"), stream(1, "1")),
		"no outcome any more":   answer("e1", contract.StatusRunning, stream(1, "another")),
		"a gap over everything": answer("e1", contract.StatusSucceeded, contract.Event{Type: contract.EventGap, Events: 9}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, other := newStore(t, dir, DefaultBytes), newStore(t, dir, DefaultBytes)
			first.Record("work").Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "0")))
			written(t, first)
			other.Record("work").Answered("vm", answer("e1", contract.StatusRunning, stream(0, "0")))
			written(t, other) // it remembers the run as it is now
			first.Record("work").Answered("vm", answer("e1", contract.StatusSucceeded, stream(1, "1")))
			written(t, first)
			before := files(t, dir)
			for _, s := range []*Store{first, other, newStore(t, dir, DefaultBytes)} {
				s.Record("work").Answered("vm", later)
				s.Record("work").Submitted("vm", submit("another"), later)
				written(t, s)
				run := wantTexts(t, s, "e1", "0", "1")
				listed, err := s.List()
				must(t, err)
				if run.Status != contract.StatusSucceeded || len(listed) != 1 || listed[0].Status != contract.StatusSucceeded || run.Lacks() {
					t.Errorf("%s, listed %+v", run.Status, listed)
				}
			}
			if after := files(t, dir); !reflect.DeepEqual(before, after) {
				t.Errorf("the files became %q", after)
			}
		})
	}
}

// The first outcome stands while the end of the output is still unknown. What is missing is
// accepted up to the end.
func TestTheFirstOutcomeStandsWhileOutputIsMissing(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	page := answer("e1", contract.StatusSucceeded, stream(0, "0"))
	page.End = false
	r.Submitted("vm", submit("1"), page)
	written(t, s)
	r.Answered("vm", answer("e1", contract.StatusFailed, stream(1, "1")))
	written(t, s)
	if run, err := s.Get("e1"); err != nil || run.Status != contract.StatusSucceeded {
		t.Errorf("%s, %v", run.Status, err)
	}
	last := answer("e1", contract.StatusSucceeded, stream(3, "3"))
	r.Answered("vm", last)
	r.Answered("vm", answer("e1", contract.StatusSucceeded, stream(2, "2"), stream(4, "4")))
	written(t, s)
	wantTexts(t, s, "e1", "0", "1", "2", "3")
}
