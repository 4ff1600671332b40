package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/uploads"
	"colabrelay/executor/variables"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// refusal is an error this package itself finds. Status and Hint, when unset, are
// those of the code.
type refusal struct {
	Code    contract.Code
	Status  int
	Message string
	Hint    string
}

func (e *refusal) Error() string { return e.Message }

// badRequest names the parameter that is wrong. It must not hold what a user typed
// beyond that.
func badRequest(format string, args ...any) error {
	return &refusal{Code: contract.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// codeRow is how a code is answered.
type codeRow struct {
	status    int
	retryable bool
	hint      string
}

// codeRows has one row for every code of the contract.
var codeRows = map[contract.Code]codeRow{
	contract.CodeUnauthorized:   {http.StatusUnauthorized, false, "pair again: the secret must be the executor's; relay and executor must be of the same release"},
	contract.CodeClockSkew:      {http.StatusUnauthorized, true, "sign again by the executor's clock, server_time"},
	contract.CodeReplayed:       {http.StatusUnauthorized, true, "sign again with a fresh nonce"},
	contract.CodeBadRequest:     {http.StatusBadRequest, false, "correct the request"},
	contract.CodeNotFound:       {http.StatusNotFound, false, "check the name or id"},
	contract.CodeConflict:       {http.StatusConflict, false, "look at what is there, then ask differently"},
	contract.CodeTooLarge:       {http.StatusRequestEntityTooLarge, false, "send less at once"},
	contract.CodeRateLimited:    {http.StatusTooManyRequests, true, "wait a minute, then try again"},
	contract.CodeQueueFull:      {http.StatusServiceUnavailable, true, "wait until earlier executions have finished, or cancel some"},
	contract.CodeKernelDead:     {http.StatusServiceUnavailable, false, "restart the kernel"},
	contract.CodeKernelStarting: {http.StatusServiceUnavailable, true, "try again in a few seconds"},
	contract.CodeLowMemory:      {http.StatusServiceUnavailable, false, "clean up variables or restart the kernel"},
	contract.CodeForbiddenPath:  {http.StatusForbidden, false, "use a path under the workdir; start the executor with --allow-path to allow another folder"},
	contract.CodeChanged:        {http.StatusPreconditionFailed, false, "the file changed meanwhile: begin again"},
	contract.CodeKernelBusy:     {http.StatusConflict, true, "wait until the execution has finished, or interrupt it"},
	contract.CodeNewInstance:    {http.StatusConflict, false, "this is another executor than before: its variables and executions are not there"},
	contract.CodeNewStart:       {http.StatusConflict, true, "sign again for the executor that this answer names"},
	contract.CodeDiskFull:       {http.StatusInsufficientStorage, false, "delete files on the VM"},
	contract.CodeShuttingDown:   {http.StatusServiceUnavailable, false, "start the executor again"},
	contract.CodeNotSupported:   {http.StatusNotImplemented, false, "update the executor"},
	contract.CodeInternal:       {http.StatusInternalServerError, true, "try again; the executor's log has the cause under this request_id"},
}

// errorRow is the code for an error of another package, and a hint that fits it
// better than the code's own.
type errorRow struct {
	err  error
	code contract.Code
	hint string
}

// errorRows are matched in this order.
var errorRows = []errorRow{
	{err: auth.ErrUnauthorized, code: contract.CodeUnauthorized},
	{err: auth.ErrClockSkew, code: contract.CodeClockSkew},
	{err: auth.ErrNewInstance, code: contract.CodeNewInstance},
	{err: auth.ErrNewStart, code: contract.CodeNewStart},
	{err: auth.ErrTooManyNonces, code: contract.CodeRateLimited}, // wraps ErrReplayed
	{err: auth.ErrReplayed, code: contract.CodeReplayed},
	{err: auth.ErrDigest, code: contract.CodeBadRequest, hint: "something between relay and executor changed the body"},
	{err: journal.ErrNotFound, code: contract.CodeNotFound, hint: "list the executions: old ones are dropped, and a new VM has none of the old one's"},
	{err: journal.ErrNoBlob, code: contract.CodeNotFound, hint: "the payload was dropped with its execution, or never was"},
	{err: journal.ErrConflict, code: contract.CodeConflict, hint: "submit other code under another request_id"},
	{err: execution.ErrQueueFull, code: contract.CodeQueueFull},
	{err: execution.ErrLowMemory, code: contract.CodeLowMemory},
	{err: execution.ErrKernelBusy, code: contract.CodeKernelBusy},
	{err: execution.ErrNotWaiting, code: contract.CodeConflict, hint: "read the execution: it waits for no input now"},
	{err: execution.ErrFinished, code: contract.CodeConflict, hint: "read the execution for its outcome"},
	{err: journal.ErrDiskFull, code: contract.CodeDiskFull},
	{err: execution.ErrShuttingDown, code: contract.CodeShuttingDown},
	{err: journal.ErrBadOffset, code: contract.CodeBadRequest, hint: "ask from the next_offset of the last answer"},
	{err: kernel.ErrDead, code: contract.CodeKernelDead},
	{err: kernel.ErrStarting, code: contract.CodeKernelStarting},
	{err: kernel.ErrStopped, code: contract.CodeShuttingDown},
	{err: variables.ErrNoVariable, code: contract.CodeNotFound, hint: "list the variables"},
	{err: files.ErrForbidden, code: contract.CodeForbiddenPath},
	{err: files.ErrNotFound, code: contract.CodeNotFound, hint: "list the folder above"},
	{err: files.ErrNotDir, code: contract.CodeBadRequest, hint: "list the folder that holds it"},
	{err: files.ErrBadPath, code: contract.CodeBadRequest},
	{err: files.ErrIsDir, code: contract.CodeBadRequest, hint: "list the folder, then ask for its files"},
	{err: files.ErrNotRegular, code: contract.CodeForbiddenPath, hint: "only files are served: copy what it gives into one"},
	{err: files.ErrChanged, code: contract.CodeChanged},
	{err: files.ErrBadRange, code: contract.CodeBadRequest, hint: "ask for the size again; send parts that lie inside it"},
	{err: files.ErrTooLarge, code: contract.CodeTooLarge, hint: "read the file in parts"},
	{err: files.ErrDiskFull, code: contract.CodeDiskFull, hint: "delete files on the VM, then go on: what came is kept"},
	{err: uploads.ErrNoUpload, code: contract.CodeNotFound, hint: "begin the upload again: one left alone is dropped, and a new VM has none"},
	{err: uploads.ErrBadUpload, code: contract.CodeBadRequest},
	{err: uploads.ErrDigest, code: contract.CodeChanged, hint: "the file changed while it was sent: begin again"},
	{err: files.ErrBusy, code: contract.CodeRateLimited, hint: "try again in a few seconds"},
	// The server ends, or the caller is gone and reads no answer.
	{err: context.Canceled, code: contract.CodeShuttingDown},
	{err: context.DeadlineExceeded, code: contract.CodeKernelBusy, hint: "the kernel did not answer in time: try again, or restart it"},
}

// translate is the answer for err. What no row knows is internal: its text may
// hold anything and stays in the log.
func translate(err error) (int, contract.Error) {
	var own *refusal
	if errors.As(err, &own) {
		status, e := answerWith(own.Code, own.Message, own.Hint)
		if own.Status != 0 {
			status = own.Status
		}
		return status, e
	}
	for _, s := range errorRows {
		if errors.Is(err, s.err) {
			return answerWith(s.code, err.Error(), s.hint)
		}
	}
	return answerWith(contract.CodeInternal, "internal error", "")
}

func answerWith(code contract.Code, message, hint string) (int, contract.Error) {
	rule := codeRows[code]
	if hint == "" {
		hint = rule.hint
	}
	return rule.status, contract.Error{Code: code, Message: message, Hint: hint, Retryable: rule.retryable}
}

// fail answers with err.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, e := a.explain(r, err)
	a.write(w, r, status, contract.ErrorBody{Error: e})
}

// explain is translate for one request. What the answer must not tell is logged.
func (a *API) explain(r *http.Request, err error) (int, contract.Error) {
	status, e := translate(err)
	e.RequestID = requestIDOf(r)
	if e.Code == contract.CodeClockSkew || err == errRefusedRate || errors.Is(err, auth.ErrTooManyNonces) {
		e.ServerTime = a.clock.now().Unix()
	}
	if e.Code == contract.CodeInternal && !errors.Is(err, errPanic) {
		a.Log.Error("internal error", "component", "api", "request_id", e.RequestID, "err", err)
	}
	return status, e
}
