package api

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"colabrelay/executor/audit"
	"colabrelay/shared/contract"
)

// auditRequest records a request whose MAC was correct, after its answer.
func (a *API) auditRequest(r *http.Request, w middleware.WrapResponseWriter, took time.Duration) {
	c := callOf(r)
	a.Audit.Request(audit.Request{
		Source: a.sourceOf(r), Method: r.Method, Path: r.URL.EscapedPath(),
		ExecutionID: c.execution, Status: w.Status(), Error: c.failure,
		Received: c.received, Sent: int64(w.BytesWritten()), DurationMS: new(took.Milliseconds()), Admitted: c.admitted,
	})
}

// submitAudited queues an execution. One that is new is recorded before its code can run.
func (a *API) submitAudited(r *http.Request, s contract.Submit) (id string, err error) {
	if id, err = a.Journal.Submitted(s); id == "" && err == nil {
		a.Audit.Submitted(a.sourceOf(r), s)
	}
	id, err = a.Queue.Submit(callerOf(r).String(), s)
	if err != nil {
		a.Audit.Refused(s.RequestID)
	}
	callOf(r).execution = id
	return id, err
}

func (a *API) sourceOf(r *http.Request) audit.Source {
	return audit.Source{RequestID: requestIDOf(r), Caller: callerOf(r).String(), Address: a.clientAddr(r)}
}
