// Package hint holds the next steps: for every error and every bad outcome of a run
// that a user of the relay may meet, what a model should do, in terms of the tools, and
// what a person should do, in terms of the commands.
//
// It must not say what happened: that is the error's own business, and relay/op's where an executor
// refused. Start reading at Of, then at the tables operations (errors.go), refusals and subjects.
package hint

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
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

	CodeNotConfigured = "not_configured"

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

// Of returns what to do about any error. An error of the relay's own packages comes first: an
// executor's refusal or a broken connection may be its cause.
func Of(err error) Hint {
	if h, ok := find(operations, err); ok {
		return h
	}
	on, _ := errors.AsType[aboutError](err)
	if on.subject == VM && !errors.Is(err, context.Canceled) { // Google's services are no executors
		return hintOf(CodeInternal, listVMs+" shows what runs. "+again+": it goes on where it stopped.")
	}
	h := cause(err)
	if better, ok := About(on.subject, h.Code); ok && (h.Code != notFound || contract.CodeOf(err) != "") { // else something on this computer does not exist
		return better
	}
	return h
}

// cause is Of for an error that is about nothing in particular.
func cause(err error) Hint {
	var (
		told    interface{ NextStep() string }
		ended   interface{ Outcome() contract.Status }
		refused *contract.Error
		failed  *client.Error
	)
	switch {
	case errors.As(err, &told):
		return Hint{Person: told.NextStep()}
	case errors.As(err, &ended):
		return ForOutcome(ended.Outcome())
	case errors.As(err, &refused):
		return ForRefusal(refused)
	case errors.Is(err, context.Canceled):
		return hintOf(CodeCancelled, "{list_executions shows what runs on the VM; interrupt_execution ends a run.|}")
	case errors.As(err, &failed):
		return Hint{string(failed.Kind), failed.Hint, failed.Hint}
	case errors.Is(err, context.DeadlineExceeded):
		return hintOf(string(client.KindTimeout), "{Call check_colab_connection.|}")
	case transfer.DiskFull(err):
		return hintOf(CodeLocalDiskFull, "Free disk space on this computer, then "+tryAgain+".")
	}
	if h, ok := find(localFiles, err); ok { // last: a broken connection may wrap the same errors
		return h
	}
	return hintOf(CodeInternal, "{Call again. If the error persists, it is a fault of the relay: its log on stderr says more.|}")
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

// Asking describes the run b, which occupies the kernel and waits for input.
func Asking(b *contract.Behind) string {
	if b.Password {
		return fmt.Sprintf("run %s, which asks for a password (%q)", b.ExecutionID, b.Prompt)
	}
	return fmt.Sprintf("run %s, which waits for input (%q)", b.ExecutionID, b.Prompt)
}

// ForPrompt returns the hint for a call that can do nothing until the prompt of the run b is
// answered.
func ForPrompt(b *contract.Behind) Hint {
	h := Hint{
		Code:   string(contract.CodeKernelBusy),
		Model:  fmt.Sprintf("Answer that run with provide_input (execution_id %q), or end it with interrupt_execution.", b.ExecutionID),
		Person: fmt.Sprintf("Answer it with `colab-relay input %s`, or end it with `colab-relay interrupt %s`.", b.ExecutionID, b.ExecutionID),
	}
	if b.Password {
		h.Model = ForPassword(b.ExecutionID) + " Or end that run with interrupt_execution."
	}
	return h
}

// ForPassword returns what a model does about the run id, which asks for a password.
func ForPassword(id string) string {
	return fmt.Sprintf("Ask the user to run `colab-relay input %s` in a terminal on this computer and to type the password there; never ask the user to tell it to you.", id)
}

// refusals are the hints for an executor's refusals.
var refusals = map[contract.Code]string{
	contract.CodeUnauthorized:   "{This computer's secret is not the executor's: ask the user to run|Run} `colab-relay pair` {in a terminal |}on this computer and {to |}paste what the executor printed.",
	contract.CodeClockSkew:      "Set this computer's clock{, or call again: the relay corrects a wrong clock once automatically|}.",
	contract.CodeReplayed:       again + ". If the error persists, something between the relay and the executor repeats requests: try another network.",
	contract.CodeBadRequest:     "Correct the arguments as the message says, then try again. If it says that the request cannot be decrypted, something between this computer and the VM changes requests: {call again, and if the error persists, suggest|try} another network.",
	contract.CodeNotFound:       "{Check the id, path or name. list_executions, list_colab_files and list_colab_variables show what exists on the VM|Check the path or id: `colab-relay ls` lists files, `colab-relay ps` runs. If the VM was replaced, its files are lost, except those on Drive}.",
	contract.CodeConflict:       "{Look at the state of the run with get_execution before you call again|The run or the file is not in the expected state. Check it before you run the same command again}.",
	contract.CodeTooLarge:       "Send less at a time: {split the code, or |}put data into a file on the VM{| (`colab-relay put`)}.",
	contract.CodeRateLimited:    "Wait a minute{, then call again, and less often: use wait_seconds instead of repeated calls|. All relays with this secret share the limit}.",
	contract.CodeQueueFull:      "Wait until earlier runs ({list_executions|`colab-relay ps`}) have ended, or end one with {interrupt_execution|`colab-relay interrupt`}; then " + tryAgain + ".",
	contract.CodeKernelDead:     "{Call restart_kernel, then run the setup code again|Run `colab-relay restart`, or start the executor again (on Colab: run its cell again)}.",
	contract.CodeKernelStarting: again + " in a few seconds.",
	contract.CodeLowMemory:      "{Call cleanup_colab, which deletes all variables, then run the setup code and this code again. If memory stays full, call restart_kernel|Delete large variables (`colab-relay vars` shows their sizes) or run `colab-relay restart`, then run the same command again}.",
	contract.CodeForbiddenPath:  "Use a path relative to the executor's working directory: {list_colab_files with path=\".\"|`colab-relay ls .`} lists it. Other folders need the executor's --allow-path.",
	contract.CodeChanged:        "The file changed during the transfer: " + tryAgain + ".",
	contract.CodeKernelBusy:     "{Call get_execution with this run's id and wait_seconds to wait for its end, or interrupt_execution to end it; then call again|A run occupies the kernel. Wait until it has ended, or end it with `colab-relay interrupt`; then run the same command again}.",
	contract.CodeNewInstance:    "Run the setup code again, then {call the tool again to run this code on the new VM|this command}.",
	contract.CodeNewStart:       "The executor was restarted more than once: " + tryAgain + ".",
	contract.CodeDiskFull:       "Free disk space on the VM: delete files{ with run_code_quick|}, then " + tryAgain + ": a transfer resumes where it stopped.",
	contract.CodeShuttingDown:   "The executor is shutting down: start it again (on Colab: run its cell again){, then call again|}.",
	contract.CodePasswordPrompt: "{Ask the user to type it: the user runs `colab-relay input ID` in a terminal on this computer, with this run's execution_id in place of ID. Never ask the user to tell it to you. Then call get_execution with wait_seconds|Type it in a terminal, where it is not shown: `colab-relay input ID`}.",
	contract.CodeNotSupported:   "Use a relay and an executor of the same release.",
	contract.CodeInternal:       again + ". If the error persists, look at the executor's output (on Colab: in its cell).",
}

// outcomes are the hints for runs that ended badly.
var outcomes = map[contract.Status]string{
	contract.StatusFailed:          "{Read the traceback, correct|Correct} the code and run it again; variables set before the error are kept.",
	contract.StatusTimedOut:        "{If the message says that the code ignored the interrupt, call interrupt_execution, and restart_kernel if that does not end it. Otherwise use run_code_long with a larger timeout_seconds for longer work|Use a larger --timeout. Variables that were already set are kept}.",
	contract.StatusInterrupted:     "{Look at what it printed, and run the code again only if you still need it.|}", // the person interrupted it, or reads in the message that someone did
	contract.StatusCancelled:       "It never started. Run it again if you still need it.",
	contract.StatusKernelDied:      "A new kernel starts automatically, without the old one's variables: run the setup code again. If it ran out of memory, process less data at a time.",
	contract.StatusKernelRestarted: "{Nothing is wrong with the code: call again to run it|Run it again} in the new kernel, after the setup code that it needs.{ Another relay or the user may have requested the restart: list_executions shows what runs now.|}",
	contract.StatusLost:            "The executor was killed while the code ran{. The output until then is kept; check|: check} what the code did before you run it again.",
}

// CodeCancelled is the code of a call that the MCP host cancelled.
const CodeCancelled = "call_cancelled"

// Subject is what a tool call is about. For some codes it has a better hint than the
// code's own.
type Subject int

const (
	Execution Subject = iota + 1
	Variable
	RemotePath
	Kernel
	Transfer
	KernelState
	ChunkedRun
	VM // one of Colab's
)

const (
	resumes      = again + ": it resumes where it stopped."
	versionsSafe = "Versions saved before are intact. "
	missingPath  = "{list_colab_files|`colab-relay ls`} shows what a folder on the VM contains. A replaced VM's files are gone with it, except those on Drive."
	loopAgain    = "{Call run_chunked_operation with the checkpoint_name|Run `colab-relay loop` again with its name}"
	rerunsSetup  = loopAgain + ": the setup code runs first. If iterations build on variables, the run goes back to the iteration at which a copy of them was kept, and repeats the iterations since then."
)

// subjects are the hints by subject and code. Those for not_found are meant for an executor's
// refusal only.
var subjects = map[Subject]map[string]string{
	Execution: {
		string(contract.CodeNotFound):    "list_executions shows the runs that the VM knows. A replaced VM's runs are gone with it.",
		string(contract.CodeConflict):    "get_execution shows its status and its output.",
		string(contract.CodeNewInstance): "list_executions shows what runs on the new VM.",
	},
	Variable: {
		string(contract.CodeNotFound): "{list_colab_variables|`colab-relay vars`} shows those there are. A new kernel has none of the old one's.",
	},
	RemotePath: {
		string(contract.CodeNotFound): missingPath,
	},
	Kernel: {
		string(contract.CodeNewInstance): again + " if you mean the kernel of the new VM.",
		string(contract.CodeConflict):    again + " if you mean the current kernel.",
	},
	Transfer: {
		string(contract.CodeNotFound):     missingPath,
		string(contract.CodeConflict):     "Choose another path on the VM, or {call again with overwrite=true|add --overwrite}.",
		string(contract.CodeTooLarge):     packIt,
		string(contract.CodeNewInstance):  again + ": the transfer goes to the new VM.",
		string(contract.CodeShuttingDown): "The executor is shutting down: start it again (on Colab: run its cell again), then " + tryAgain + "; on the same VM the transfer resumes where it stopped.",
		CodeCancelled:                     resumes,
	},
	KernelState: {
		string(contract.StatusTimedOut):        "Delete variables that you do not need, or write large data to files, and " + tryAgain + ".",
		string(contract.StatusInterrupted):     "Nothing was changed. " + again + " if you still need it.",
		string(contract.StatusCancelled):       "It never started. " + again + ".",
		string(contract.StatusKernelDied):      versionsSafe + "A new kernel starts automatically, without the old one's variables. If it ran out of memory, save less at a time, or restore into a VM with more memory.",
		string(contract.StatusKernelRestarted): versionsSafe + "Someone restarted the kernel, and its variables are gone. " + again + " when the variables to save, or the setup code, have been restored.",
		string(contract.StatusLost):            versionsSafe + "The executor was killed. " + again + ".",
		string(contract.StatusFailed):          versionsSafe + "{get_execution|`colab-relay logs`} shows the run.",
		string(contract.CodeNewInstance):       again + ": it starts from the beginning on the new VM.",
		CodeCancelled:                          resumes,
	},
	ChunkedRun: {
		string(contract.StatusFailed):          "Read the traceback and {call run_chunked_operation with the checkpoint_name, corrected code and on_change=\"continue\"|run `colab-relay loop` again with the corrected --code and --on-change continue}: completed iterations are kept. With the same code the same iteration is tried again.",
		string(contract.StatusTimedOut):        "Completed iterations are kept. " + loopAgain + ": the iteration that was cut off starts again, with ten times as long. If it ignored the interrupt, {call interrupt_execution first, and restart_kernel|run `colab-relay interrupt` first, and `colab-relay restart`} if that does not end it.",
		string(contract.StatusInterrupted):     "Completed iterations are kept. " + loopAgain + " to continue.",
		string(contract.StatusCancelled):       "Its job on the VM was deleted; completed iterations are kept. " + loopAgain + " to continue.",
		string(contract.StatusKernelDied):      "The kernel's variables are gone. " + rerunsSetup + " If it ran out of memory, do less in one iteration.",
		string(contract.StatusKernelRestarted): "Nothing is wrong with the code: someone restarted the kernel, and its variables are gone. " + rerunsSetup,
		string(contract.StatusLost):            "The executor was killed, and the kernel's variables are gone. " + rerunsSetup,
		string(contract.CodeNewInstance):       loopAgain + " to continue on the new VM: the setup code runs first, and the variables that iterations passed on are restored from the copy on this computer.",
		string(contract.CodeQueueFull):         "Nothing was lost: the VM has too many unfinished runs. {list_executions|`colab-relay ps`} shows them; when some have ended or are interrupted, " + tryAgain + ".",
		string(contract.CodeDiskFull):          "Nothing was lost: the VM's disk is full. Delete files there{ (run_code_quick)|}, then " + tryAgain + ".",
		string(chunked.StatusVariablesLost): "If a saved state has them, {call restore_kernel_state|run `colab-relay restore`} first, and then this again. Otherwise: {on_change=\"restart\"|--on-change restart} with the code starts at iteration 0; {independent=true|--independent} goes on " +
			"if no iteration needs what another one left; {on_stop=\"continue\"|--on-stop continue} goes on with what the setup code makes, and a value that is added up lacks the earlier iterations.",
		string(chunked.StatusVariablesChanged): loopAgain + " and {on_stop=\"accept\"|--on-stop accept} to go on with the values as they are now, or {on_stop=\"restore\"|--on-stop restore} to go back to the copy that the run kept; the answer then says which iterations run again.",
		string(chunked.StatusIncomplete): loopAgain + ", if needed with corrected code and {on_change=\"continue\"|--on-change continue}, and with {on_stop=\"again\"|--on-stop again} to run the iteration again on the values that it may have changed, " +
			"{\"skip\"|skip} to count it as done, or {\"restore\"|restore} to go back to the copy that the run kept and repeat the iterations since then.",
	},
}

// aboutError is an error of an operation on a subject, or on one item of that kind.
type aboutError struct {
	subject Subject
	item    string // empty for none
	error
}

// With returns err as the error of an operation on an item of a subject; nil for none.
func With(subject Subject, item string, err error) error {
	if err == nil {
		return nil
	}
	return aboutError{subject, item[:min(len(item), maxItem)], err}
}

// maxItem bounds the name of an item in a message, in bytes.
const maxItem = 60

// nouns are what a message calls the items of a subject.
var nouns = map[Subject]string{Execution: "run", Variable: "variable"}

// Error names the item.
func (e aboutError) Error() string {
	switch noun := nouns[e.subject]; {
	case e.item == "":
		return e.error.Error()
	case noun != "" && contract.CodeOf(e.error) == contract.CodeNotFound:
		return fmt.Sprintf("no such %s %q", noun, e.item)
	default:
		return strings.TrimPrefix(fmt.Sprintf("%s %q: %v", noun, e.item, e.error), " ")
	}
}

func (e aboutError) Unwrap() error { return e.error }

// SubjectOf returns what err is about; 0 if that is not known.
func SubjectOf(err error) Subject {
	on, _ := errors.AsType[aboutError](err)
	return on.subject
}

// About returns what to do when something about s ended with code, if s has a special hint for it.
func About(s Subject, code string) (h Hint, ok bool) {
	text, ok := subjects[s][code]
	return hintOf(code, text), ok
}
