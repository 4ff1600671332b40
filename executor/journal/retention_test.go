package journal

import (
	"errors"
	"fmt"
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
