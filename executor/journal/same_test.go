package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

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

// A request_id with other content is a conflict, also for the next executor and after the run's
// folder was deleted.
func TestWhatARunIsBelongsToItsRequest(t *testing.T) {
	const kept = 4
	dir := t.TempDir()
	j := openIn(t, dir, Limits{Kept: kept, Tombstones: 1})
	submits := []contract.Submit{
		{RequestID: "plain", Code: "1"},
		{RequestID: "unstored", Code: "1", Unstored: true},
	}
	ids := map[string]string{}
	check := func(when string, j *Journal) {
		t.Helper()
		for _, s := range submits {
			wantKnown(t, j, when, s, ids[s.RequestID])
		}
	}
	for _, s := range submits {
		ids[s.RequestID] = finished(t, j, s, "").ID
	}
	check("immediately", j)
	check("after a kill", openIn(t, dir, Limits{Kept: kept, Tombstones: 1}))
	for n := range 2 * kept {
		finished(t, j, contract.Submit{RequestID: fmt.Sprint(n), Code: "pass", Unstored: n%2 == 0}, "")
	}
	if _, err := os.Stat(filepath.Join(dir, ids["unstored"])); err == nil {
		t.Fatal("the folder is still there")
	}
	check("after its folder was deleted", j)
	check("after that and a kill", openIn(t, dir, Limits{Kept: kept, Tombstones: 1}))
}

// An execution without a tombstone is kept, though there are too many: it would run again.
func TestAnExecutionIsKeptUntilItsTombstoneIsWritten(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{Kept: 1, Tombstones: 1})
	must(t, os.MkdirAll(filepath.Join(dir, olderFile, "in the way"), 0o700)) // of a second tombstone
	for n := range 3 {
		s := contract.Submit{RequestID: fmt.Sprint(n), Code: "1"}
		id := finished(t, j, s, "").ID
		defer func() { wantKnown(t, j, "at the end", s, id) }()
	}
}
