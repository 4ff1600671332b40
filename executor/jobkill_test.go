package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// Kills of the executor at random steps: no step of the job runs twice, and each step that ran
// is in the job with its execution, although the job ended with its executor.
func TestAKilledExecutorRepeatsNoStepOfAJobAndLosesNone(t *testing.T) {
	tier.Long(t)
	random := rand.New(rand.NewPCG(3, 4))
	p := start(t, withEnv(envSecret+"="+longSecret))
	p.ready()
	for round := range 5 {
		id, path := fmt.Sprint("job-", round), filepath.Join(p.dir, fmt.Sprint("ran", round))
		s := jobThatWrites(id, path, 30)
		if x := call[contract.Job](p, "POST", contract.PathJobs, s); x.State.Ended() {
			t.Fatalf("submitted: %+v", x)
		}
		at := random.IntN(60)
		p.until("the step runs", func() bool { raw, _ := os.ReadFile(path); return strings.Count(string(raw), "\n") >= at })
		p.signal(syscall.SIGKILL)
		p.exit()
		must(t, os.Remove(p.readyFile()))

		p = start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
		p.ready()
		raw, err := os.ReadFile(path)
		must(t, err)
		for range 2 { // it may be submitted again
			x := call[contract.Job](p, "POST", contract.PathJobs, s)
			checkKilledJob(t, p, x, strings.Fields(string(raw)))
		}
		p.submit(fmt.Sprint("after-", round), "1", 20)
		if again, err := os.ReadFile(path); err != nil || string(again) != string(raw) {
			t.Errorf("kill %d: more of the job ran afterwards: %q, %v", round, again[len(raw):], err)
		}
	}
}

// jobThatWrites has n steps, and then rounds, of which each writes its index into a file.
func jobThatWrites(id, path string, n int) contract.JobSubmit {
	s := contract.JobSubmit{JobID: id}
	for i := range n {
		s.Steps = append(s.Steps, contract.JobStep{
			StepID: fmt.Sprint("s", i), Code: fmt.Sprintf("i = %d\nprint(i)\nwith open(%q, 'a') as f: print(i, file=f)", i, path),
		})
	}
	s.Loop = &contract.JobLoop{Code: fmt.Sprintf("i += 1\nprint(i)\nwith open(%q, 'a') as f: print(i, file=f)", path), Again: "True", MaxRounds: 10_000}
	return s
}

// checkKilledJob checks that a killed executor's job has each step that ran, and at most one
// more that began.
func checkKilledJob(t *testing.T, p *program, x contract.Job, ran []string) {
	t.Helper()
	if x.State != contract.JobKernelLost || x.Next < len(ran) || x.Next > len(ran)+1 {
		t.Fatalf("%d steps ran; the job is %s, and %d of its steps began", len(ran), x.State, x.Next)
	}
	for i, e := range x.Steps {
		if i >= x.Next {
			if e.Status != contract.StepNotRun || e.ExecutionID != "" {
				t.Errorf("entry %d, which never began, is %+v", i, e)
			}
			continue
		}
		run := call[contract.Execution](p, "GET", contract.PathExecutions+"/"+e.ExecutionID, nil)
		if run.Job == nil || run.Job.Index != i || contract.StepStatus(run.Status) != e.Status {
			t.Errorf("entry %d is %+v, its execution %+v", i, e, run)
		}
		if i < len(ran) && ran[i] != fmt.Sprint(i) {
			t.Fatalf("line %d of what ran is %s", i, ran[i])
		}
		if i < x.Next-2 && run.Status != contract.StatusSucceeded { // the next one began after its end
			t.Errorf("entry %d of %d is %s", i, x.Next, run.Status)
		}
	}
}

func TestTheAuditLogHasTheExecutionsOfJobs(t *testing.T) {
	tier.Long(t)
	path := filepath.Join(t.TempDir(), "state", "audit.log")
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	p := audited(t, path, withArgs("--state-dir", filepath.Dir(path)))
	s := contract.JobSubmit{JobID: "j", Steps: []contract.JobStep{{StepID: "a", Code: "1"}, {StepID: "b", Code: "1/0"}}}
	call[contract.Job](p, "POST", contract.PathJobs, s)
	x := call[contract.Job](p, "GET", contract.PathJobs+"/j?from=2&wait_seconds=30", nil)
	x = call[contract.Job](p, "GET", contract.PathJobs+"/j", nil)
	if x.State != contract.JobFailed || x.Cause != contract.CauseStepFailed {
		t.Fatalf("it is %+v", x)
	}
	p.signal(syscall.SIGTERM)
	p.exit()
	all := entries(t, path)
	for i, outcome := range []contract.Status{contract.StatusSucceeded, contract.StatusFailed} {
		ended := one(t, all, map[string]any{"event": "execution_ended", "execution_id": x.Steps[i].ExecutionID, "outcome": string(outcome)})
		submitted := one(t, all, map[string]any{"event": "execution_submitted", "submit_id": ended["submit_id"]})
		if caller, _ := submitted["caller"].(string); caller == "" || submitted["code_sha256"] != ended["code_sha256"] {
			t.Errorf("step %d was recorded as %v", i, submitted)
		}
	}
}
