package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// ofJob adds the execution of a job that printed text and succeeded.
func ofJob(t *testing.T, j *Journal, n int, text string) *Record {
	t.Helper()
	return finished(t, j, contract.Submit{RequestID: fmt.Sprint("job-", n), Code: "1", Unstored: n%2 == 0, Job: &contract.JobRef{JobID: "j", Index: n}}, text)
}

// fetch reads all of an execution, a part at a time.
func fetch(t *testing.T, j *Journal, id string) (text string) {
	t.Helper()
	for offset := int64(0); ; {
		x, err := j.Read(t.Context(), id, ReadRequest{Offset: offset, MaxBytes: 1})
		must(t, err)
		for _, e := range x.Events {
			text += e.Text + strings.Repeat("gap", int(e.Events))
		}
		if x.End {
			return text
		}
		offset = x.NextOffset
	}
}

func TestOutputOfAJobThatNoRelayHasFetchedIsDeletedLast(t *testing.T) {
	const size = 100_000
	dir := t.TempDir()
	j := openIn(t, dir, Limits{StateSize: 10 * (size + 1000)})
	add := func(n int) *Record { return ofJob(t, j, n, strings.Repeat("x", size)) }
	var jobs []*Record
	for n := range 4 {
		jobs = append(jobs, add(n))
	}
	for n := range 30 {
		finished(t, j, contract.Submit{RequestID: fmt.Sprint(n), Code: "1", Unstored: n%3 == 0}, strings.Repeat("y", size))
	}
	for n, r := range jobs {
		if r.bytes() < size {
			t.Fatalf("the output of step %d, which nobody has read, is deleted before newer output of others", n)
		}
	}
	if got := fetch(t, j, jobs[1].ID); len(got) != size {
		t.Fatalf("step 1 has %d bytes", len(got))
	}
	if jobs[2].fetchedUpTo(1, 2); !jobs[2].awaited() {
		t.Error("a read of the end alone counts as one of the whole")
	}
	for n := range 9 { // with the three, two more than there is room for
		jobs = append(jobs, add(len(jobs)))
		if want := n < 7; (jobs[0].bytes() > 0) != want {
			t.Fatalf("with %d more, the oldest one has %d bytes", n+1, jobs[0].bytes())
		}
	}
	if jobs[1].bytes() != 0 || jobs[1].Snapshot().Reason != "" {
		t.Errorf("step 1, which was read, has %d bytes and the reason %q", jobs[1].bytes(), jobs[1].Snapshot().Reason)
	}
	j.Flush()
	for when, j := range map[string]*Journal{"now": j, "at the next executor": openIn(t, dir, Limits{})} {
		x := read(t, j, jobs[0].ID)
		if len(x.Events) != 1 || x.Events[0].Type != contract.EventGap || !strings.Contains(x.Reason, "before a relay had read it") || x.Status != contract.StatusSucceeded {
			t.Errorf("%s, step 0 is %s: %q, %d events", when, x.Status, x.Reason, len(x.Events))
		}
	}
}

func TestExecutionsOfJobsThatNoRelayHasFetchedAreKeptUpToTheirBound(t *testing.T) {
	const kept, awaited = 5, 20
	j := openIn(t, t.TempDir(), Limits{Kept: kept, Awaited: awaited})
	var all []*Record
	for n := range 4 * (kept + awaited) {
		all = append(all, ofJob(t, j, 2*n, fmt.Sprint(n)))
	}
	if got := len(j.List(1000)); got != kept+awaited {
		t.Errorf("%d executions are kept, want %d", got, kept+awaited)
	}
	for n, r := range all {
		past := n < len(all)-kept-awaited
		want := fmt.Sprint(n)
		if past {
			want = "gap"
		}
		if got := fetch(t, j, r.ID); got != want {
			t.Errorf("round %d has the output %q, want %q", n, got, want)
		}
		if x := read(t, j, r.ID); strings.Contains(x.Reason, "no longer kept") != past || x.Job == nil || *x.Job != (contract.JobRef{JobID: "j", Index: 2 * n}) {
			t.Errorf("round %d has the reason %q, and is of %+v", n, x.Reason, x.Job)
		}
		if _, err := j.Submitted(contract.Submit{RequestID: fmt.Sprint("job-", 2*n), Code: "other", Unstored: true}); !errors.Is(err, ErrConflict) {
			t.Errorf("round %d is unknown: %v", n, err)
		}
	}
	j.Trim()
	if got := len(j.List(1000)); got != kept {
		t.Errorf("when all were read, %d executions are kept, want %d", got, kept)
	}
}

// When Restore returns, the next executor knows every request, whether the folder was deleted or
// moved away, as a desktop's trash does it.
func TestWhatRanIsOnDiskWhenRestoreReturns(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".trash") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "executions")
			j := openIn(t, dir, Limits{Kept: 2, Tombstones: 2})
			submits, ids := map[string]contract.Submit{}, map[string]string{}
			for n := range 4 { // the first two become tombstones
				s := contract.Submit{RequestID: fmt.Sprint("past-", n), Code: "1"}
				submits[s.RequestID], ids[s.RequestID] = s, finished(t, j, s, "text").ID
			}
			s := contract.Submit{RequestID: "running", Code: "2"}
			running := create(t, j, s)
			submits[s.RequestID], ids[s.RequestID] = s, running.ID
			must(t, lose(dir))
			missing, err := j.Restore()
			if err != nil || missing != 3 {
				t.Errorf("Restore gives %d, %v", missing, err)
			}
			if missing, err := j.Restore(); err != nil || missing != 0 {
				t.Errorf("the second Restore gives %d, %v", missing, err)
			}
			again := openIn(t, dir, Limits{Kept: 2, Tombstones: 2}) // the first one was killed
			for id, s := range submits {
				wantKnown(t, again, "restored", s, ids[id])
			}
		})
	}
}

// variants are submits under one request_id that differ in one field each.
func variants(s contract.Submit) map[string]contract.Submit {
	code, unstored := s, s
	code.Code += " "
	unstored.Unstored = !s.Unstored
	return map[string]contract.Submit{"code": code, "unstored": unstored}
}

func wantKnown(t *testing.T, j *Journal, when string, s contract.Submit, id string) {
	t.Helper()
	free := s
	free.TimeoutSeconds, free.WaitSeconds = 5, 6 // these may differ
	for _, s := range []contract.Submit{s, free} {
		if got, err := j.Submitted(s); err != nil || got != id {
			t.Errorf("%s, %s again: %q, %v; want %q", when, s.RequestID, got, err, id)
		}
	}
	for field, other := range variants(s) {
		if _, err := j.Submitted(other); !errors.Is(err, ErrConflict) {
			t.Errorf("%s, %s with another %s: %v", when, s.RequestID, field, err)
		}
	}
}

// block puts something in the place of states.log that it cannot replace, until free is called.
func block(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, statesFile)
	must(t, os.Remove(path))
	must(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	return func() { must(t, os.RemoveAll(path)) }
}

// An execution without a tombstone is kept, though there are too many: it would run again.
func TestAnExecutionIsKeptUntilItsTombstoneIsWritten(t *testing.T) {
	dir := t.TempDir()
	limits := Limits{Kept: 1, Tombstones: 10}
	j := openIn(t, dir, limits)
	var submits []contract.Submit
	var runs []*Record
	for n := range 3 {
		submits = append(submits, contract.Submit{RequestID: fmt.Sprint(n), Code: "1"})
		runs = append(runs, create(t, j, submits[n]))
	}
	check := func(when string, j *Journal, kept int) {
		t.Helper()
		for n, s := range submits {
			wantKnown(t, j, when, s, runs[n].ID)
		}
		if got := len(j.List(10)); got != kept {
			t.Errorf("%s, %d are kept, want %d", when, got, kept)
		}
	}
	free := block(t, dir)
	for _, r := range runs {
		r.Finish(contract.StatusSucceeded, "", 0)
	}
	j.Trim()
	check("without a file", j, 3)
	free()
	j.Flush()
	j.Trim()
	check("with one", j, 1)
	again := openIn(t, dir, limits)
	check("at the next executor", again, 1)
	if x := read(t, again, runs[0].ID); x.Status != contract.StatusSucceeded {
		t.Errorf("the first one is %s", x.Status)
	}
}

// Threads print after the end of a run. The next executor knows how much there is, whether the log was
// closed long ago or was open when the executor was killed.
func TestWhatCameAfterTheEndCountsForTheNextExecutor(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	late := func(id string) *Record {
		r := finished(t, j, contract.Submit{RequestID: id, Code: "1"}, "text")
		must(t, r.Append(stdout("late")))
		putBlob(t, r, "a picture")
		return r
	}
	closed := late("closed")
	closed.CloseLog()
	for n := range mayHaveGrown {
		finished(t, j, contract.Submit{RequestID: fmt.Sprint(n), Code: "1"}, "text").CloseLog()
	}
	open := late("open")
	again := openIn(t, dir, Limits{})
	for _, r := range []*Record{closed, open} {
		found, err := again.Find(r.ID)
		must(t, err)
		if found.Snapshot().NextOffset != 2 || found.bytes() != r.bytes() {
			t.Errorf("up to offset %d, %d bytes; want 2, %d", found.Snapshot().NextOffset, found.bytes(), r.bytes())
		}
	}
	if again.output.Load() != j.output.Load() {
		t.Errorf("all have %d bytes, want %d", again.output.Load(), j.output.Load())
	}
}
