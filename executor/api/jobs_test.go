package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestJobsOverHTTP(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s := newLiveStand(t, stacks.Old(t))
	job := contract.PathJobs + "/j"
	submit := contract.JobSubmit{JobID: "j", Steps: []contract.JobStep{
		{StepID: "a", Code: "input()"}, {StepID: "b", Code: "1"}, {StepID: "c", Code: "2"},
	}}
	for range 2 { // a repeated one returns the same job
		if x := into[contract.Job](s, s.call("POST", contract.PathJobs, submit)); x.JobID != "j" || x.StepCount != 3 {
			t.Fatalf("submitted: %+v", x)
		}
	}
	s.call("POST", contract.PathJobs, contract.JobSubmit{JobID: "j", Steps: submit.Steps[:1]}).want(t, http.StatusConflict, contract.CodeConflict)
	x := into[contract.Job](s, s.call("GET", job+"?wait_seconds=30", nil))
	for x.State == contract.JobRunning {
		x = into[contract.Job](s, s.call("GET", job+"?from=3&wait_seconds=30", nil))
	}
	if x.State != contract.JobWaiting || x.Cause != contract.CauseInput {
		t.Fatalf("while it asks: %+v", x)
	}
	patch := contract.JobPatch{PatchID: "p", From: "b", Steps: []contract.JobStep{{StepID: "d", Code: "3"}}}
	if x = into[contract.Job](s, s.call("PATCH", job, patch)); x.Revision != 1 || x.StepCount != 2 {
		t.Errorf("patched: %+v", x)
	}
	patch.PatchID = "q"
	s.call("PATCH", job, patch).want(t, http.StatusConflict, contract.CodeConflict)
	if list := into[contract.JobList](s, s.call("GET", contract.PathJobs, nil)); len(list.Jobs) != 1 || len(list.Jobs[0].Steps) != 0 {
		t.Errorf("listed: %+v", list)
	}
	if x = into[contract.Job](s, s.call("DELETE", job+"?interrupt=true", nil)); x.State != contract.JobCancelled || x.Cause != contract.CauseDeleted {
		t.Errorf("deleted: %+v", x)
	}
	run := s.read(x.Steps[0].ExecutionID, "")
	if run.Job == nil || run.Job.JobID != "j" || run.Status != contract.StatusInterrupted {
		t.Errorf("its execution is %+v", run)
	}

	s.call("GET", contract.PathJobs+"/unknown", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	s.call("DELETE", contract.PathJobs+"/unknown", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	s.call("POST", contract.PathJobs, contract.JobSubmit{JobID: "k"}).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	big := contract.JobSubmit{JobID: "k", Steps: []contract.JobStep{{StepID: "a", Code: "#" + strings.Repeat("x", contract.MaxJobCode)}}}
	s.call("POST", contract.PathJobs, big).want(t, http.StatusRequestEntityTooLarge, contract.CodeTooLarge)
	into[contract.JobList](s, s.call("GET", fmt.Sprint(contract.PathJobs, "?limit=", contract.MaxListJobs), nil))
	s.call("GET", fmt.Sprint(contract.PathJobs, "?limit=", contract.MaxListJobs+1), nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("GET", job+"?from=-1", nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("DELETE", job+"?interrupt=yes", nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
}
