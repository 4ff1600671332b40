package api

import (
	"math"
	"net/http"

	"colabrelay/executor/job"
	"colabrelay/shared/contract"
)

// submitJob accepts a job, which runs by itself, and answers at once.
func (a *API) submitJob(r *http.Request) (any, error) {
	var s contract.JobSubmit
	if err := decode(r, &s); err != nil {
		return nil, err
	}
	return a.Jobs.Submit(callerOf(r).String(), s)
}

func (a *API) listJobs(r *http.Request) (any, error) {
	p := parametersOf(r)
	limit := p.number("limit", defaultListLimit, 1, contract.MaxListJobs)
	if p.err != nil {
		return nil, p.err
	}
	return contract.JobList{Jobs: a.Jobs.List(int(limit))}, nil
}

func (a *API) readJob(r *http.Request) (any, error) {
	p := parametersOf(r)
	id, from, wait := p.id(job.ErrNotFound), p.number("from", 0, 0, math.MaxInt32), p.wait()
	if p.err != nil {
		return nil, p.err
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.Jobs.Read(r.Context(), id, int(from), wait)
}

func (a *API) patchJob(r *http.Request) (any, error) {
	p := parametersOf(r)
	id := p.id(job.ErrNotFound)
	var patch contract.JobPatch
	p.fail(decode(r, &patch))
	if p.err != nil {
		return nil, p.err
	}
	return a.Jobs.Patch(id, patch)
}

// deleteJob ends a job. With interrupt, it waits for the end of the execution that runs.
func (a *API) deleteJob(r *http.Request) (any, error) {
	p := parametersOf(r)
	id, interrupt := p.id(job.ErrNotFound), p.flag("interrupt")
	if p.err != nil {
		return nil, p.err
	}
	if interrupt {
		done, err := a.wait(r) // the kernel may need 10 s to stop
		if err != nil {
			return nil, err
		}
		defer done()
	}
	return a.Jobs.Delete(r.Context(), id, interrupt)
}
