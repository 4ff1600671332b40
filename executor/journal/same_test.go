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
	code, unstored, after, any, none := s, s, s, s, s
	code.Code += " "
	unstored.Unstored = !s.Unstored
	after.AfterRequestID += "x"
	any.AfterAny = !s.AfterAny
	none.AfterRequestID, none.AfterAny = "", false
	all := map[string]contract.Submit{"code": code, "unstored": unstored, "after_request_id": after, "after_any": any}
	if s.AfterRequestID != "" {
		all["without after_request_id"] = none
	}
	return all
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

// What a run follows is part of its request, also for the next executor and after the run's
// folder was deleted.
func TestWhatARunFollowsBelongsToItsRequest(t *testing.T) {
	const kept = 4
	dir := t.TempDir()
	j := openIn(t, dir, Limits{Kept: kept})
	submits := []contract.Submit{
		{RequestID: "plain", Code: "1"},
		{RequestID: "after", Code: "1", AfterRequestID: "plain"},
		{RequestID: "any", Code: "1", AfterRequestID: "plain", AfterAny: true},
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
	check("after a kill", openIn(t, dir, Limits{Kept: kept}))
	for n := range kept {
		finished(t, j, contract.Submit{RequestID: fmt.Sprint(n), Code: "pass"}, "")
	}
	if _, err := os.Stat(filepath.Join(dir, ids["any"])); err == nil {
		t.Fatal("the folder is still there")
	}
	check("after its folder was deleted", j)
	check("after that and a kill", openIn(t, dir, Limits{Kept: kept}))
}

// A release that did not know after_request_id has written these.
func TestRecordsWithoutAfterRequestIDStayValid(t *testing.T) {
	dir := t.TempDir()
	const sum = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" // of "1"
	state := `{"execution_id":"11111111-1111-4111-8111-111111111111","request_id":"old","status":"succeeded","queue_position":0,` +
		`"kernel_id":"k","created_at":"2026-11-21T10:00:00Z","timeout_seconds":600,"code_preview":"1","next_offset":0,"code_sha256":"` + sum + `"}` + "\n"
	past := `{"id":"22222222-2222-4222-8222-222222222222","r":"older","h":"a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s","s":"failed","k":"k","c":"2026-11-21T09:00:00Z","t":600}` + "\n"
	folder := filepath.Join(dir, "11111111-1111-4111-8111-111111111111")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, stateFileName), []byte(state), 0o600),
		os.WriteFile(filepath.Join(dir, newerFile), []byte(past), 0o600)); err != nil {
		t.Fatal(err)
	}
	j := openIn(t, dir, Limits{})
	wantKnown(t, j, "in a folder", contract.Submit{RequestID: "old", Code: "1"}, "11111111-1111-4111-8111-111111111111")
	wantKnown(t, j, "as a tombstone", contract.Submit{RequestID: "older", Code: "1"}, "22222222-2222-4222-8222-222222222222")
	for request, want := range map[string]contract.Status{"old": contract.StatusSucceeded, "older": contract.StatusFailed} {
		if x := j.ByRequest(request).Snapshot(); x.Status != want || x.KernelID != "k" {
			t.Errorf("%s: %s in kernel %q", request, x.Status, x.KernelID)
		}
	}
	if j.ByRequest("unknown") != nil {
		t.Error("an unknown request_id has an execution")
	}
}
