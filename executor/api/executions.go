package api

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

const defaultListLimit = 100

// submit queues an execution and waits until it finishes, requests input or wait_seconds
// have passed, so that quick code takes one round trip. The execution continues if the
// caller disconnects.
func (a *API) submit(r *http.Request) (any, error) {
	var s contract.Submit
	if err := decode(r, &s); err != nil {
		return nil, err
	}
	wait, err := checkSubmit(s)
	if err != nil {
		return nil, err
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	id, err := a.submitAudited(r, s)
	if err != nil {
		return nil, err
	}
	return a.withSessionEnd(a.Journal.Read(r.Context(), id, journal.ReadRequest{
		Wait: wait, UntilEnd: true, BehindInput: s.BehindInput,
		EventsAfter: time.Duration(s.OutputAfterSeconds * float64(time.Second)),
	}))
}

// checkSubmit checks s against the contract's bounds.
func checkSubmit(s contract.Submit) (wait time.Duration, err error) {
	if !contract.RequestIDPattern().MatchString(s.RequestID) {
		return 0, badRequest("request_id: must be 1 to %d characters of A-Z a-z 0-9 . _ -", contract.MaxRequestIDLen)
	}
	if strings.TrimSpace(s.Code) == "" {
		return 0, badRequest("code: must not be empty")
	}
	if strings.ContainsRune(s.Code, 0) {
		return 0, badRequest("code: contains a NUL character, which Python does not accept")
	}
	if _, err := seconds("timeout_seconds", s.TimeoutSeconds, contract.MaxTimeout); err != nil {
		return 0, err
	}
	if _, err := seconds("output_after_seconds", s.OutputAfterSeconds, contract.MaxWait); err != nil {
		return 0, err
	}
	return seconds("wait_seconds", s.WaitSeconds, contract.MaxWait)
}

// waitFor takes a slot for a long poll, unless wait is 0.
func (a *API) waitFor(r *http.Request, wait time.Duration) (done func(), err error) {
	if wait == 0 {
		return func() {}, nil
	}
	return a.wait(r)
}

func (a *API) readExecution(r *http.Request) (any, error) {
	p := parametersOf(r)
	id := p.id(journal.ErrNotFound)
	read := journal.ReadRequest{
		Offset:   p.number("offset", 0, 0, math.MaxInt64),
		MaxBytes: p.number("max_bytes", contract.DefaultReadBytes, 1, contract.MaxReadBytes),
		Wait:     p.wait(),

		BehindInput: p.flag(contract.QueryBehindInput),
	}
	if p.err != nil {
		return nil, p.err
	}
	done, err := a.waitFor(r, read.Wait)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.withSessionEnd(a.Journal.Read(r.Context(), id, read))
}

func (a *API) listExecutions(r *http.Request) (any, error) {
	p := parametersOf(r)
	limit := p.number("limit", defaultListLimit, 1, contract.MaxListExecutions)
	if p.err != nil {
		return nil, p.err
	}
	return contract.ExecutionList{Executions: a.Journal.List(int(limit))}, nil
}

func (a *API) interruptExecution(r *http.Request) (any, error) {
	p := parametersOf(r)
	id := p.id(journal.ErrNotFound)
	if p.err != nil {
		return nil, p.err
	}
	done, err := a.wait(r) // the kernel may need 10 s to stop
	if err != nil {
		return nil, err
	}
	defer done()
	return a.withSessionEnd(a.Queue.Interrupt(r.Context(), id))
}

// giveInput answers a waiting input() and returns the state of the execution.
func (a *API) giveInput(r *http.Request) (any, error) {
	p := parametersOf(r)
	id := p.id(journal.ErrNotFound)
	if p.err != nil {
		return nil, p.err
	}
	in, err := readInput(bodyOf(r))
	if err != nil {
		return nil, err
	}
	if err := a.Queue.Input(r.Context(), id, in); err != nil {
		return nil, err
	}
	return a.withSessionEnd(a.Journal.Read(r.Context(), id, journal.ReadRequest{NoEvents: true}))
}

func readInput(body []byte) (in contract.Input, err error) {
	if err := decodeBytes(body, &in); err != nil {
		return in, err
	}
	switch {
	case in.Offset != nil && *in.Offset < 0:
		return in, badRequest("offset: must not be negative")
	case len(in.InputID) > 64:
		return in, badRequest("input_id: must have at most 64 bytes")
	}
	return in, nil
}

// blob serves a part of a large payload: length bytes, or fewer at its end.
func (a *API) blob(r *http.Request) ([]byte, error) {
	p := parametersOf(r)
	id := p.id(journal.ErrNotFound)
	number := blobNumber(chi.URLParam(r, "number"))
	if number == 0 {
		p.fail(journal.ErrNoBlob)
	}
	offset := p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", contract.MaxBlobPart, 1, contract.MaxBlobPart)
	if p.err != nil {
		return nil, p.err
	}
	f, err := a.Journal.Blob(id, number)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading a blob: %w", err)
	}
	part := make([]byte, max(0, min(length, info.Size()-offset)))
	if _, err := f.ReadAt(part, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading a blob: %w", err)
	}
	return part, nil
}

// blobNumber returns the number of a blob that has this text in its path, or 0.
func blobNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > contract.MaxBlobs || strconv.Itoa(n) != text {
		return 0
	}
	return n
}

// idPattern matches the ids that the executor makes. Any other id is answered as unknown
// without further processing.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

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

var errPanic = errors.New("handler panicked")

// recovery turns a panic into an internal error. It is in the chain twice: inside seal, so
// that the relay gets a sealed answer, and outside everything else.
func (a *API) recovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v) // net/http closes the connection
			}
			a.Log.Error("panic", "component", "api", "request_id", requestIDOf(r), "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			a.fail(w, r, errPanic)
		}()
		next.ServeHTTP(w, r)
	})
}

// withSessionEnd adds the remaining time of the VM's session to an execution, so that a
// caller can save results in time. The remaining time is determined after the wait, because
// the executor may have shut down while the caller waited.
func (a *API) withSessionEnd(x contract.Execution, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	x.SessionMinutesLeft = a.sessionMinutesLeft()
	return x, nil
}

func (a *API) sessionMinutesLeft() *float64 {
	select {
	case <-a.Ending:
		return new(float64)
	default:
		return a.Prober.SessionMinutesLeft()
	}
}
