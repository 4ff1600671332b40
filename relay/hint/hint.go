// Package hint holds the next steps: for every error and every bad outcome of a run
// that a user of the relay may meet, what a model should do, in terms of the tools, and
// what a person should do, in terms of the commands.
//
// It must not decide what happened: that is the error's own business. Start reading at
// the tables in errors.go and refusals.go.
package hint

import (
	"errors"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// Codes of the relay's own. Others are contract.Code, client.Kind and, for runs that
// went wrong, contract.Status.
const (
	CodeBadRequest    = string(contract.CodeBadRequest)
	CodeInternal      = string(contract.CodeInternal)
	CodeLocalDiskFull = "local_disk_full"
	CodeLocalFile     = "local_file"
	CodeBusy          = "busy"
	CodeSomeFailed    = "some_failed"
	CodeDamaged       = "checkpoint_damaged"

	CodeNotEnabled = "not_enabled"
	CodeQuota      = "quota"
	CodeDenied     = "denied"

	CodeNotebookDamaged = "notebook_damaged"

	CodePageWaiting = "page_waiting" // Colab's page waits for the user, or is not ready yet
	CodePageRefused = "page_refused"
	CodeTabLost     = "tab_lost"             // in the call
	CodeNotRun      = "not_run"              // the page answered without running the cell
	CodeNoExecutor  = "executor_not_started" // start_executor ended without a pairing
)

// Hint is what to do next. Both texts are full sentences, or empty.
type Hint struct {
	Code   string // the error's code in a tool's answer
	Model  string
	Person string
}

// hintOf returns the hint that a text of the tables has for its two readers: of {a|b}, a model reads
// a and a person b.
func hintOf(code, text string) Hint {
	h := Hint{Code: code}
	for more := true; more; {
		var both, choice string
		both, text, more = strings.Cut(text, "{")
		choice, text, _ = strings.Cut(text, "}")
		model, person, _ := strings.Cut(choice, "|")
		h.Model, h.Person = h.Model+both+model, h.Person+both+person
	}
	return h
}

// row is the hint for one error value.
type row struct {
	err        error
	code, text string
}

// find returns the hint of the first row that matches err.
func find(rows []row, err error) (Hint, bool) {
	for _, r := range rows {
		if errors.Is(err, r.err) {
			return hintOf(r.code, r.text), true
		}
	}
	return Hint{}, false
}

// ForOperation returns the hint for an error of the relay's own packages. Look here
// first: an executor's refusal or a broken connection may be the cause of such an error.
func ForOperation(err error) (Hint, bool) { return find(operations, err) }

// ForLocalFile returns the hint for a fault of this computer's files. Look here last: a
// broken connection may wrap the same errors.
func ForLocalFile(err error) (Hint, bool) { return find(localFiles, err) }

// CodeUnknown is that of a refusal or an outcome that this relay does not know. The executor's own
// words for it are not passed on: a hostile one could tell a model or a person what to do.
const CodeUnknown = "unknown"

var unknown = hintOf(CodeUnknown, "This relay does not know what the executor answered: use a relay and an executor of the same release.")

// ForRefusal returns the hint for an executor's refusal. One by kernel_busy may name the run
// that has the kernel.
func ForRefusal(e *contract.Error) Hint {
	if b := client.WaitsForInput(e.Behind); b != nil && e.Code == contract.CodeKernelBusy {
		return ForPrompt(b)
	}
	next, known := refusals[e.Code]
	if !known {
		return unknown
	}
	return hintOf(string(e.Code), next)
}

// ForOutcome returns the hint for a run that ended badly as s.
func ForOutcome(s contract.Status) Hint {
	next, known := outcomes[s]
	if !known {
		return unknown
	}
	return hintOf(string(s), next)
}

// Person returns what a person should do about err; empty when there is nothing to add.
func Person(err error) string {
	var (
		told    interface{ NextStep() string }
		ended   interface{ Outcome() contract.Status }
		refused *contract.Error
		failed  *client.Error
	)
	if h, ok := ForOperation(err); ok {
		return h.Person
	}
	switch {
	case errors.As(err, &told):
		return told.NextStep()
	case errors.As(err, &ended):
		return ForOutcome(ended.Outcome()).Person
	case errors.As(err, &refused):
		var on interface{ Subject() Subject }
		if errors.As(err, &on) {
			if h, ok := About(on.Subject(), string(refused.Code)); ok {
				return h.Person
			}
		}
		return ForRefusal(refused).Person
	case errors.As(err, &failed):
		return failed.Hint
	}
	return ""
}
