package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/pairing"
	"colabrelay/relay/render"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
)

// Problem is the error object of an answer.
type Problem struct {
	Code      string `json:"code" doc:"What went wrong, for programs."`
	Message   string `json:"message" doc:"What happened."`
	Hint      string `json:"hint" doc:"The next step."`
	EName     string `json:"ename,omitempty" doc:"Class of the Python exception."`
	EValue    string `json:"evalue,omitempty" doc:"Its text."`
	Traceback string `json:"traceback,omitempty"`
}

// Error is the code and the message.
func (p *Problem) Error() string { return p.Code + ": " + p.Message }

// copy is a problem that may be changed: some are shared by all calls.
func (p *Problem) copy() *Problem {
	if p == nil {
		return nil
	}
	fresh := *p
	return &fresh
}

// Codes of the relay's own. Others are contract.Code, client.Kind and, for runs
// that went wrong, contract.Status.
const (
	codeBadRequest    = string(contract.CodeBadRequest)
	codeInternal      = string(contract.CodeInternal)
	codeNotConfigured = "not_configured"
	codeCancelled     = "call_cancelled"
	codeLocalDiskFull = "local_disk_full"
	codeLocalFile     = "local_file"
	codeBusy          = "busy"
	codeSomeFailed    = "some_failed"
	codeDamaged       = "checkpoint_damaged"
)

var cancelledProblem = &Problem{
	Code:    codeCancelled,
	Message: "the host cancelled this call; only the waiting ended, a run that was submitted goes on",
	Hint:    "list_executions shows what runs on the VM; interrupt_execution ends a run.",
}

// refusals are the hints that say more, in terms of tools, than the executor's own.
var refusals = map[contract.Code]string{
	contract.CodeUnauthorized:   "The secret on this computer is not the executor's: run `relay pair` in a terminal on this computer and paste what the executor's cell printed.",
	contract.CodeClockSkew:      "Set this computer's clock, or call again: the relay corrects a wrong clock by itself once.",
	contract.CodeReplayed:       "Call again; if it stays, something on the way repeats requests.",
	contract.CodeBadRequest:     "Mend the arguments as the message says, and call again.",
	contract.CodeNotFound:       "Check the id, path or name: list_executions, list_colab_files and list_colab_variables show what there is. Executions of a replaced VM are gone with it.",
	contract.CodeConflict:       "Look at where the run stands with get_execution before you call again.",
	contract.CodeTooLarge:       "Send less at once: split the code, or put data into a file on the VM.",
	contract.CodeRateLimited:    "Wait a minute, then call again, and less often: use wait_seconds in place of repeated calls.",
	contract.CodeQueueFull:      "Wait for earlier runs (list_executions) or end one with interrupt_execution, then call again.",
	contract.CodeKernelDead:     "Call restart_kernel, then run the set-up code again.",
	contract.CodeKernelStarting: "Call again in a few seconds.",
	contract.CodeLowMemory:      "Call cleanup_colab, or delete large variables, or restart_kernel; then run the code again.",
	contract.CodeForbiddenPath:  "Use a path under /content (or the executor's workdir); the executor's --allow-path adds other folders.",
	contract.CodeChanged:        "The file changed meanwhile: call again from the start.",
	contract.CodeKernelBusy:     "A run holds the kernel: wait for it with get_execution, or end it with interrupt_execution, or with restart_kernel where it does not yield; then call again.",
	contract.CodeNewInstance:    "Run the set-up code again, then call the tool again to run this code on the new VM.",
	contract.CodeNewStart:       "The executor was started again more than once meanwhile: call again.",
	contract.CodeDiskFull:       "Free disk space on the VM (delete files), then call again.",
	contract.CodeShuttingDown:   "The executor is ending: start its cell in Colab again, then call again.",
	contract.CodeNotSupported:   "Use a relay and an executor of the same release.",
	contract.CodeInternal:       "Call again; if it stays, look at the executor's output in its Colab cell.",
}

// failure is an error of the relay's own packages, told with code and hint.
type failure struct {
	err        error
	code, hint string
}

// failures are looked up before what an executor or the line says: an error of
// theirs may be the cause of one.
var failures = []failure{
	{transfer.ErrGuarded, string(contract.CodeForbiddenPath), "Do not work around this: ask the user. The user may upload it with `relay put` in a terminal, or list the path in RELAY_UPLOAD_ALLOW in the relay's environment, which permits all but the relay's own folders."},
	{kernelstate.ErrUntrustedReport, string(client.KindBadAnswer), "Call again. If it stays, code in the kernel interferes with saving: restart_kernel."},
	{transfer.ErrUnexpected, string(contract.CodeChanged), "Call again: the kernel writes the state anew. If it stays, code in the kernel interferes with it: restart_kernel."},
	{transfer.ErrChanged, string(contract.CodeChanged), "Something writes to the file: wait until it is whole (list_executions shows what runs), then call again with the same arguments."},
	{transfer.ErrLocalDisk, codeLocalDiskFull, "Free disk space on this computer, then call again with the same arguments: what has come is kept."},
	{transfer.ErrBusy, codeBusy, "Another call is moving this file: call again with the same arguments once that one has answered, or choose another name."},
	{transfer.ErrForbiddenName, string(contract.CodeForbiddenPath), "Use a local name below LOCAL_SAVE_DIR: relative, without .. and drive letters, of names that this computer allows."},
	{transfer.ErrNotRegular, string(contract.CodeNotSupported), "Only files and folders can be moved. Write what is wanted of it into a file first."},
	{transfer.ErrLocalPath, codeBadRequest, "Check local_path, and that the host sets LOCAL_SAVE_DIR to a folder, or to one that can be made."},
	{transfer.ErrTooMany, string(contract.CodeTooLarge), "Pack the folder into one archive (tar, zip), or move its subfolders one by one."},
	{chunked.ErrNoName, codeBadRequest, "Give a checkpoint_name."},
	{chunked.ErrTooLarge, string(contract.CodeTooLarge), "Put data into a file on the VM (upload_to_colab), and large functions into a module there."},
	{checkpoint.ErrBusy, codeBusy, "Wait until the other call has answered, or use another checkpoint_name."},
	{chunked.ErrChanged, string(contract.CodeConflict), "Call again with on_change=\"continue\" to keep what is done and go on with the new code, with on_change=\"restart\" to begin at 0, or with another checkpoint_name."},
	{chunked.ErrDamaged, codeDamaged, "The file is left as it is. Use another checkpoint_name; or call run_chunked_operation with on_change=\"restart\": then it is kept aside and the run begins at 0."},
	{chunked.ErrNotChunked, string(contract.CodeConflict), "get_checkpoint shows what is kept under this name. Use another checkpoint_name; or on_change=\"restart\", which keeps that file aside."},
	{kernelstate.ErrNotFound, string(contract.CodeNotFound), "Call save_kernel_state first."},
	{kernelstate.ErrNoVersion, string(contract.CodeNotFound), "Call again with one of these versions, or leave version out for the newest."},
	{kernelstate.ErrDamaged, codeDamaged, "Call restore_kernel_state with another version; the damaged one is left as it is, and nothing of it was loaded."},
	{kernelstate.ErrBusy, codeBusy, "Wait until the other call has answered, then call again."},
	{kernelstate.ErrBadName, codeBadRequest, "Give a name of 1 to 200 characters."},
	{kernelstate.ErrNoReport, codeInternal, "Call again. If it stays, the notebook's code changed IPython itself: call restart_kernel."},
	{kernelstate.ErrNoSpace, string(contract.CodeDiskFull), "Delete files on the VM, then call again."},
	{transfer.ErrSomeFailed, codeSomeFailed, "notes says which files, and why. Call again with the same arguments: those that are there are skipped."},
}

// localFailures are faults of this computer's files, where nothing else explains
// the error: a broken connection may hold the same ones.
var localFailures = []failure{
	{fs.ErrNotExist, string(contract.CodeNotFound), "Check the path on this computer: absolute, beginning with ~/, or below LOCAL_SAVE_DIR."},
	{fs.ErrPermission, codeLocalFile, "The relay may not read or write there: choose another path, or mend the permissions."},
}

// tell is the Problem for err out of table, nil when it has none.
func tell(table []failure, err error) *Problem {
	for _, f := range table {
		if errors.Is(err, f.err) {
			return &Problem{Code: f.code, Message: err.Error(), Hint: f.hint}
		}
	}
	return nil
}

// problemOf translates whatever a call to an executor ended with.
func problemOf(err error) *Problem {
	var (
		told    *Problem
		refused *contract.Error
		lost    *client.Error
	)
	if errors.As(err, &told) {
		return told
	}
	if p := tell(failures, err); p != nil {
		return p
	}
	switch {
	case errors.As(err, &refused):
		return refusalProblem(refused)
	case errors.Is(err, context.Canceled):
		return cancelledProblem
	case errors.As(err, &lost):
		return &Problem{Code: string(lost.Kind), Message: lost.Message, Hint: lost.Hint}
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{Code: string(client.KindTimeout), Message: "no answer came in the time given", Hint: "Call check_colab_connection."}
	}
	if p := tell(localFailures, err); p != nil {
		return p
	}
	return internalProblem(err.Error())
}

func refusalProblem(e *contract.Error) *Problem {
	p := &Problem{Code: string(e.Code), Message: e.Message, Hint: refusals[e.Code]}
	if e.Code == contract.CodeNewInstance {
		p.Message = "the VM behind this address is a new one; the code was not run again there, and the variables of the old VM are gone"
	}
	if p.Hint == "" { // a code newer than this relay
		p.Hint = e.Hint
	}
	if p.Hint == "" {
		p.Hint = "Call check_colab_connection."
	}
	return p
}

func internalProblem(message string) *Problem {
	return &Problem{Code: codeInternal, Message: message, Hint: "Call again; if it stays, it is a fault of the relay: its log on stderr says more."}
}

// badSettings tells what is wrong with the relay's settings, all of it.
func badSettings(faults []error) *Problem {
	var lines []string
	for _, err := range faults {
		lines = append(lines, err.Error())
	}
	return &Problem{
		Code:    codeNotConfigured,
		Message: "the relay's settings are wrong: " + strings.Join(lines, "; "),
		Hint:    "Mend them in the MCP host's configuration (the relay's env block) and restart the host.",
	}
}

// resolveProblem tells why no runtime could be chosen.
func resolveProblem(err error) *Problem {
	var told *Problem
	if errors.As(err, &told) {
		return told
	}
	p := &Problem{
		Code:    codeNotConfigured,
		Message: err.Error(),
		Hint:    "Start the executor's cell in Colab, run `relay pair` in a terminal on this computer and paste what the cell printed; then call again, no restart needed. Where another runtime is paired, leave `runtime` out to use it.",
	}
	if errors.Is(err, pairing.ErrNoAddress) {
		p.Hint = "Run the commands that the message names, in a terminal on this computer, then call again; no restart is needed."
	}
	if errors.Is(err, pairing.ErrAmbiguous) {
		p.Hint = "Call again with runtime set to one of these names."
	}
	return p
}

// brief bounds a text that came from the VM.
func brief(s string) string {
	s, _ = render.Clip(render.Plain(s), 1000)
	return s
}

// outcomes are the hints for runs that ended badly.
var outcomes = map[contract.Status]string{
	contract.StatusFailed:          "Read the traceback, mend the code and run it again; variables set before the error are kept.",
	contract.StatusTimedOut:        "If the message says that the run did not yield, only restart_kernel ends it. Else use run_code_long with a larger timeout_seconds for longer work.",
	contract.StatusInterrupted:     "Look at what it printed, then run the code again when it is wanted.",
	contract.StatusCancelled:       "It never started. Run it again if it is still wanted.",
	contract.StatusKernelDied:      "A new kernel starts by itself; its variables are gone: run the set-up code again. After running out of memory, work on less data at once.",
	contract.StatusKernelRestarted: "Nothing is wrong with the code: call again to run it in the new kernel, after the set-up code that it needs. Another relay or the user may have asked for the restart: list_executions shows what runs now.",
	contract.StatusLost:            "The executor was killed while it ran. What it printed until then is kept; check what it did before you run it again.",
}

// runProblem is the error of an execution that went wrong, nil for any other.
func runProblem(e contract.Execution) *Problem {
	if e.Status.OK() {
		return nil
	}
	p := &Problem{Code: string(e.Status), Message: brief(e.Reason), Hint: outcomes[e.Status]}
	if e.Error != nil {
		p.EName, p.EValue = brief(e.Error.EName), brief(e.Error.EValue)
	}
	if p.Message == "" && p.EName != "" {
		p.Message = strings.TrimSuffix(fmt.Sprintf("%s: %s", p.EName, p.EValue), ": ")
	}
	if p.Message == "" {
		p.Message = "the run ended as " + string(e.Status)
	}
	if p.Hint == "" {
		p.Hint = "Look at it with get_execution."
	}
	return p
}
