package history

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"colabrelay/shared/contract"
)

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
				if run.Status != contract.StatusSucceeded || len(listed) != 1 || listed[0].Status != contract.StatusSucceeded || s.Lacks(run) {
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
