package client

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

var aJob = contract.JobSubmit{JobID: "j", Steps: []contract.JobStep{{StepID: "a", Code: "1"}}}

// methods are those of the requests that changed something, with what they were sent to.
func (e *executor) methods() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.requests {
		if r.method != http.MethodGet {
			all = append(all, r.method+" "+r.path+" "+r.query+" "+string(r.body))
		}
	}
	return all
}

func TestALostAnswerToAJobsRequestIsAskedForAgain(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *Client) (contract.Job, error){
		"submit": func(ctx context.Context, c *Client) (contract.Job, error) { return c.SubmitJob(ctx, aJob) },
		"patch": func(ctx context.Context, c *Client) (contract.Job, error) {
			return c.PatchJob(ctx, "instance-1", "j", contract.JobPatch{PatchID: "p"})
		},
		"delete": func(ctx context.Context, c *Client) (contract.Job, error) {
			return c.DeleteJob(ctx, "instance-1", "j", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, contract.Job{JobID: "j", State: contract.JobRunning} })
			c := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
			j, err := do(t.Context(), c)
			if err != nil || j.JobID != "j" || j.State != contract.JobRunning {
				t.Fatalf("%+v, %v", j, err)
			}
			if sent := e.methods(); len(sent) != 2 || sent[0] != sent[1] {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

func TestARefusalDoesNotHideAnUnansweredSubmitOfAJob(t *testing.T) {
	e := newExecutor(t, refusesSubmits(contract.CodeLowMemory))
	c := e.acquainted(t)
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	_, err := c.SubmitJob(t.Context(), aJob)
	wantKind(t, err, KindTimeout)
	if !MayRun(err) || !strings.Contains(err.Error(), string(contract.CodeLowMemory)) {
		t.Errorf("%v", err)
	}
}

// A job that may run on the old VM does not move to the new one.
func TestAJobThatMayRunDoesNotMoveToANewVM(t *testing.T) {
	respond := func(seen) (int, any) { return http.StatusOK, contract.Job{JobID: "j"} }
	e := newExecutor(t, respond)
	c := e.acquainted(t)
	e.becomes("instance-2/start-1")
	if _, err := c.SubmitJob(t.Context(), aJob); err != nil {
		t.Errorf("that certainly reached no executor: %v", err)
	}
	_, err := c.SubmitJobTo(t.Context(), "instance-1", aJob)
	wantCode(t, err, contract.CodeNewInstance)
	_, err = c.DeleteJob(t.Context(), "instance-1", "j", false)
	wantCode(t, err, contract.CodeNewInstance)
	e.setAfter(first(func(w http.ResponseWriter) bool { e.becomes("instance-3/start-1"); hangUp(w); return true }))
	_, err = c.SubmitJob(t.Context(), aJob)
	wantCode(t, err, contract.CodeNewInstance)
}
