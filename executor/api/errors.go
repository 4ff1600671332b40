package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/uploads"
	"colabrelay/executor/variables"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// refusal is an error that this package detects. If Status or Hint is unset, that of the
// code is used.
type refusal struct {
	Code    contract.Code
	Status  int
	Message string
	Hint    string
}

func (e *refusal) Error() string { return e.Message }

// badRequest is an error that names the wrong parameter. It must not quote anything else
// that a user typed.
func badRequest(format string, args ...any) error {
	return &refusal{Code: contract.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// codeRow is how an error with a code is answered.
type codeRow struct {
	status    int
	retryable bool
	hint      string
}

// codeRows has one row for every code of the contract.
var codeRows = map[contract.Code]codeRow{
	contract.CodeUnauthorized:   {http.StatusUnauthorized, false, "Pair again: the relay needs the secret of this executor, and both must be of the same release."},
	contract.CodeClockSkew:      {http.StatusUnauthorized, true, "Sign again with the executor's time, server_time."},
	contract.CodeReplayed:       {http.StatusUnauthorized, true, "Sign again with a fresh nonce."},
	contract.CodeBadRequest:     {http.StatusBadRequest, false, "Correct the request."},
	contract.CodeNotFound:       {http.StatusNotFound, false, "Check the name or id."},
	contract.CodeConflict:       {http.StatusConflict, false, "Read the current state, then send a request that fits it."},
	contract.CodeTooLarge:       {http.StatusRequestEntityTooLarge, false, "Send less in one request."},
	contract.CodeRateLimited:    {http.StatusTooManyRequests, true, "Wait a minute, then try again."},
	contract.CodeQueueFull:      {http.StatusServiceUnavailable, true, "Wait until earlier executions have finished, or cancel some."},
	contract.CodeKernelDead:     {http.StatusServiceUnavailable, false, "Restart the kernel."},
	contract.CodeKernelStarting: {http.StatusServiceUnavailable, true, "Try again in a few seconds."},
	contract.CodeLowMemory:      {http.StatusServiceUnavailable, false, "Delete variables or restart the kernel."},
	contract.CodeForbiddenPath:  {http.StatusForbidden, false, "Use a path under the working directory. Start the executor with --allow-path to allow another folder."},
	contract.CodeChanged:        {http.StatusPreconditionFailed, false, "The file changed: start again from its beginning."},
	contract.CodeKernelBusy:     {http.StatusConflict, true, "Wait until the execution has finished, or interrupt it."},
	contract.CodeNewInstance:    {http.StatusConflict, false, "This is a different executor. It does not have the variables and executions of the earlier one."},
	contract.CodeNewStart:       {http.StatusConflict, true, "Sign again for the executor named in the Executor-Instance header of this answer."},
	contract.CodeDiskFull:       {http.StatusInsufficientStorage, false, "Delete files on the VM."},
	contract.CodeShuttingDown:   {http.StatusServiceUnavailable, false, "Start the executor again."},
	contract.CodePasswordPrompt: {http.StatusConflict, false, "The person types the password in a terminal: run `colab-relay input ID` there."},
	contract.CodeNotSupported:   {http.StatusNotImplemented, false, "Update the executor."},
	contract.CodeInternal:       {http.StatusInternalServerError, true, "Try again. The executor's log has the cause under this request_id."},
}

// errorRow is the code of another package's error, and a hint if there is a better one
// than that of the code.
type errorRow struct {
	err  error
	code contract.Code
	hint string
}

// errorRows are matched from the first to the last.
var errorRows = []errorRow{
	{err: auth.ErrUnauthorized, code: contract.CodeUnauthorized},
	{err: auth.ErrClockSkew, code: contract.CodeClockSkew},
	{err: auth.ErrNewInstance, code: contract.CodeNewInstance},
	{err: auth.ErrNewStart, code: contract.CodeNewStart},
	{err: auth.ErrTooManyNonces, code: contract.CodeRateLimited}, // wraps ErrReplayed
	{err: auth.ErrReplayed, code: contract.CodeReplayed},
	{err: journal.ErrNotFound, code: contract.CodeNotFound, hint: "List the executions. Old executions are dropped, and a new VM does not have the executions of an earlier VM."},
	{err: journal.ErrNoBlob, code: contract.CodeNotFound, hint: "Check the number. A payload is deleted together with its execution."},
	{err: journal.ErrConflict, code: contract.CodeConflict, hint: "Submit different code under a new request_id."},
	{err: execution.ErrQueueFull, code: contract.CodeQueueFull},
	{err: execution.ErrQueuedCode, code: contract.CodeQueueFull, hint: "Wait until earlier executions have finished, or cancel some, then submit again. Upload large data as a file instead of sending it in the code."},
	{err: job.ErrNotFound, code: contract.CodeNotFound, hint: "List the jobs. Old jobs are dropped, and a new VM does not have the jobs of an earlier VM."},
	{err: job.ErrOther, code: contract.CodeConflict, hint: "Submit a different job under a new job_id."},
	{err: job.ErrConflict, code: contract.CodeConflict, hint: "Read the job, then send what fits its revision and what has begun."},
	{err: job.ErrTooMany, code: contract.CodeQueueFull, hint: "Wait until earlier jobs have ended, or delete some."},
	{err: job.ErrBad, code: contract.CodeBadRequest},
	{err: job.ErrTooLarge, code: contract.CodeTooLarge, hint: "Split the job, or put data into a file."},
	{err: execution.ErrLowMemory, code: contract.CodeLowMemory},
	{err: execution.ErrKernelBusy, code: contract.CodeKernelBusy},
	{err: execution.ErrNotWaiting, code: contract.CodeConflict, hint: "Read the execution: it is not waiting for input now."},
	{err: execution.ErrOtherPrompt, code: contract.CodeConflict, hint: "Read the execution: the prompt that this text answers is no longer open."},
	{err: execution.ErrPassword, code: contract.CodePasswordPrompt},
	{err: execution.ErrFinished, code: contract.CodeConflict, hint: "Read the execution to get its outcome."},
	{err: journal.ErrDiskFull, code: contract.CodeDiskFull},
	{err: execution.ErrShuttingDown, code: contract.CodeShuttingDown},
	{err: journal.ErrBadOffset, code: contract.CodeBadRequest, hint: "Continue from the next_offset of the last answer."},
	{err: kernel.ErrDead, code: contract.CodeKernelDead},
	{err: kernel.ErrStarting, code: contract.CodeKernelStarting},
	{err: kernel.ErrStopped, code: contract.CodeShuttingDown},
	{err: variables.ErrNoVariable, code: contract.CodeNotFound, hint: "List the variables."},
	{err: files.ErrForbidden, code: contract.CodeForbiddenPath},
	{err: files.ErrNotFound, code: contract.CodeNotFound, hint: "List the parent folder."},
	{err: files.ErrNotDir, code: contract.CodeBadRequest, hint: "List the parent folder."},
	{err: files.ErrBadPath, code: contract.CodeBadRequest},
	{err: files.ErrIsDir, code: contract.CodeBadRequest, hint: "List the folder, then request its files."},
	{err: files.ErrNotRegular, code: contract.CodeForbiddenPath, hint: "Copy its content into a regular file and request that file."},
	{err: files.ErrLeased, code: contract.CodeConflict, hint: "A program on the VM, such as a file server, holds a lease on this file. End it, or wait until it releases the file, then try again; or download a copy of the file."},
	{err: files.ErrChanged, code: contract.CodeChanged},
	{err: files.ErrBadRange, code: contract.CodeBadRequest, hint: "Request the size of the file again, then use ranges inside it."},
	{err: files.ErrTooLarge, code: contract.CodeTooLarge, hint: "Read the file in parts."},
	{err: files.ErrDiskFull, code: contract.CodeDiskFull, hint: "Delete files on the VM, then continue: the bytes received so far are kept."},
	{err: uploads.ErrNoUpload, code: contract.CodeNotFound, hint: "Start the upload again. Uploads that are not used for a long time are dropped, and a new VM has none."},
	{err: files.ErrTooMany, code: contract.CodeBadRequest, hint: "Send several requests with fewer files each."},
	{err: uploads.ErrBadUpload, code: contract.CodeBadRequest},
	{err: uploads.ErrTaken, code: contract.CodeConflict, hint: "Choose another path, or upload with overwrite."},
	{err: uploads.ErrDigest, code: contract.CodeChanged, hint: "The file changed while it was sent: start again."},
	{err: files.ErrBusy, code: contract.CodeRateLimited, hint: "Try again in a few seconds."},
	// The server is shutting down, or the caller has disconnected and reads no answer.
	{err: context.Canceled, code: contract.CodeShuttingDown},
	{err: context.DeadlineExceeded, code: contract.CodeKernelBusy, hint: "The kernel did not answer in time: try again, or restart the kernel."},
}

// translate returns the answer to err. An error without a row is internal: its text may
// contain anything and is only logged.
func translate(err error) (int, contract.Error) {
	var own *refusal
	if errors.As(err, &own) {
		status, e := answerWith(own.Code, own.Message, own.Hint)
		return cmp.Or(own.Status, status), e
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
	return rule.status, contract.Error{Code: code, Message: message, Hint: cmp.Or(hint, rule.hint), Retryable: rule.retryable}
}

// fail answers the request with err.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, e := a.explain(r, err)
	callOf(r).failure = e.Code
	a.write(w, r, status, contract.ErrorBody{Error: e})
}

// explain is translate for one request. It logs the cause of an internal error.
func (a *API) explain(r *http.Request, err error) (int, contract.Error) {
	status, e := translate(err)
	e.RequestID = requestIDOf(r)
	if busy, ok := errors.AsType[*execution.BusyError](err); ok {
		e.Behind = &busy.Behind
	}
	if e.Code == contract.CodeClockSkew || err == errRefusedRate || errors.Is(err, auth.ErrTooManyNonces) {
		e.ServerTime = a.clock.now().Unix()
	}
	if e.Code == contract.CodeInternal && !errors.Is(err, errPanic) {
		a.Log.Error("internal error", "component", "api", "request_id", e.RequestID, "err", err)
	}
	return status, e
}
