package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

// Problem is the error object of an answer.
type Problem struct {
	Code      string `json:"code"`             // what went wrong, for programs
	Message   string `json:"message"`          // what happened
	Hint      string `json:"hint"`             // the next step
	EName     string `json:"ename,omitempty"`  // class of the Python exception
	EValue    string `json:"evalue,omitempty"` // its text
	Traceback string `json:"traceback,omitempty"`

	arrived bool // no executor answered, and one may have carried out the request
}

// Error returns the code and the message.
func (p *Problem) Error() string { return p.Code + ": " + p.Message }

// NextStep is what the reader of the call's answer does next.
func (p *Problem) NextStep() string { return p.Hint }

// orNil returns p as an error.
func (p *Problem) orNil() error {
	if p == nil {
		return nil
	}
	return p
}

// copy returns a problem that may be changed; some are shared by all calls.
func (p *Problem) copy() *Problem {
	if p == nil {
		return nil
	}
	fresh := *p
	return &fresh
}

// withHint returns a copy of p with another hint.
func (p *Problem) withHint(text string) *Problem {
	fresh := p.copy()
	fresh.Hint = text
	return fresh
}

// Codes of this package. Others are of package hint, contract.Code, client.Kind and, for
// runs that went wrong, contract.Status.
const (
	codeBadRequest    = hint.CodeBadRequest
	codeInternal      = hint.CodeInternal
	codeNotConfigured = "not_configured"
	codeCancelled     = hint.CodeCancelled
)

var cancelledProblem = &Problem{
	Code:    codeCancelled,
	Message: "the host cancelled this call; only the waiting ended, and a run that was submitted continues",
	Hint:    "list_executions shows what runs on the VM; interrupt_execution ends a run.",
}

// problemOf translates any error of a call. Its table of hints is package hint.
func problemOf(err error) *Problem {
	var (
		refused *contract.Error
		failed  *client.Error
	)
	if own, ok := errors.AsType[*Problem](err); ok {
		return own
	}
	if wrong, ok := errors.AsType[*ArgumentError](err); ok {
		return &Problem{Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: %s: %v", wrong.name, wrong.err), Hint: "Call again with other values."}
	}
	if on, ok := errors.AsType[aboutError](err); ok {
		switch on.subject {
		case hint.VM:
			return vmProblem(on.error)
		case hint.Transfer:
			return transferProblem(on.error)
		}
		if on.item == "" || nouns[on.subject] == "" {
			return problemAbout(on.subject, on.error)
		}
		return problemOn(on.subject, on.item, on.error)
	}
	if h, ok := hint.ForOperation(err); ok {
		return &Problem{Code: h.Code, Message: ownMessage(err), Hint: h.Model}
	}
	switch {
	case errors.As(err, &refused):
		return refusalProblem(refused)
	case errors.Is(err, context.Canceled):
		return cancelledProblem
	case errors.As(err, &failed):
		return lostProblem(failed)
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{Code: string(client.KindTimeout), Message: "no answer arrived in time", Hint: "Call check_colab_connection."}
	}
	if ended, ok := errors.AsType[*kernelcall.EndedError](err); ok {
		return runProblem(ended.Last)
	}
	if transfer.DiskFull(err) {
		return &Problem{Code: hint.CodeLocalDiskFull, Message: err.Error(), Hint: "Free disk space on this computer, then call again with the same arguments."}
	}
	if h, ok := hint.ForLocalFile(err); ok {
		return &Problem{Code: h.Code, Message: err.Error(), Hint: h.Model}
	}
	return internalProblem(err.Error())
}

// lostProblem is the problem of a call that no executor answered. The same call finds again what it
// submitted.
func lostProblem(failed *client.Error) *Problem {
	p := &Problem{Code: string(failed.Kind), Message: failed.Message, Hint: failed.Hint, arrived: client.MayHaveArrived(failed)}
	if client.MayRun(failed) {
		p.Message += "; the code may have been submitted"
		p.Hint = "Call again with the same arguments: the call finds what it submitted, and nothing runs twice. For the connection: " + p.Hint
		p.arrived = false // this says so
	}
	return p
}

// ownMessage returns the message of an error of the relay's, in which an executor's refusal that
// caused it is quoted.
func ownMessage(err error) string {
	refused, ok := errors.AsType[*contract.Error](err)
	if !ok || refused.Message == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), refused.Error(), saidByVM(refused.Message))
}

// maxReason is how many characters of an explanation from the VM a line of the relay has at most.
const maxReason = 600

// saidByVM is a message of the executor or of code on the VM, for a message of the relay.
func saidByVM(message string) string {
	if message == "" {
		return "the VM gave no reason"
	}
	return "the VM says: " + plain.Quote(plain.Clip(message, maxReason))
}

// newVM are the messages of new_instance for calls about a subject.
var newVM = map[hint.Subject]string{
	hint.ChunkedRun: "the VM behind this address was replaced by a new one",
	hint.Execution:  "the VM behind this address is a new one; the run ended with the old VM, and its variables are gone",
	hint.Kernel:     "the VM behind this address is a new one, and its kernel was not changed; the variables of the old VM are gone",
}

// aboutError is an error of an operation on a subject, or on one item of that kind.
type aboutError struct {
	subject hint.Subject
	item    string // empty for none
	error
}

// about returns err as the error of an operation on an item of a subject; nil for none.
func about(subject hint.Subject, item string, err error) error {
	if err == nil {
		return nil
	}
	return aboutError{subject, item, err}
}

// Error is what a person reads.
func (e aboutError) Error() string {
	switch item := clipName(e.item); {
	case item == "":
		return e.error.Error()
	case nouns[e.subject] != "" && refusalCode(e.error) == contract.CodeNotFound:
		return fmt.Sprintf("no such %s %q", nouns[e.subject], item)
	default:
		return strings.TrimPrefix(fmt.Sprintf("%s %q: %v", nouns[e.subject], item, e.error), " ")
	}
}

func (e aboutError) Unwrap() error { return e.error }

// Subject is what a hint asks for.
func (e aboutError) Subject() hint.Subject { return e.subject }

// problemAbout is problemOf with the hint and message of the call's subject, if that has
// better ones.
func problemAbout(subject hint.Subject, err error) *Problem {
	p := withHintAbout(subject, problemOf(err), err)
	if p.Code == string(contract.CodeNewInstance) {
		p.Message = cmp.Or(newVM[subject], p.Message)
	}
	return p
}

// nouns are what a message calls the items of a subject.
var nouns = map[hint.Subject]string{hint.Execution: "run", hint.Variable: "variable"}

// problemOn is problemAbout with the name of the item in the message, where the executor's
// refusal lacks it.
func problemOn(subject hint.Subject, item string, err error) *Problem {
	p := problemAbout(subject, err)
	item = clipName(item)
	switch code := refusalCode(err); {
	case code == contract.CodeNotFound:
		p.Message = fmt.Sprintf("no such %s %q", nouns[subject], item)
	case code != "" && code != contract.CodeNewInstance && !strings.Contains(p.Message, item):
		p.Message = fmt.Sprintf("%s %q: %s", nouns[subject], item, p.Message)
	}
	return p
}

// withHintAbout returns a copy of p, the problem of err, with its subject's hint.
func withHintAbout(subject hint.Subject, p *Problem, err error) *Problem {
	if p.Code == string(contract.CodeNotFound) && refusalCode(err) == "" {
		return p.copy() // something on this computer does not exist
	}
	if h, ok := hint.About(subject, p.Code); ok {
		return p.withHint(h.Model)
	}
	return p.copy()
}

// refusalCode returns the code of the executor's refusal, or "" for any other error.
func refusalCode(err error) contract.Code {
	return contract.CodeOf(err)
}

func refusalProblem(e *contract.Error) *Problem {
	h := hint.ForRefusal(e)
	p := &Problem{Code: h.Code, Message: saidByVM(e.Message), Hint: h.Model}
	if b := client.WaitsForInput(e.Behind); b != nil && e.Code == contract.CodeKernelBusy {
		p.Message = "the kernel is occupied by " + hint.Asking(b)
		p.Hint += " Then call again."
	}
	if e.Code == contract.CodeNewInstance {
		p.Message = "the VM behind this address is a new one; the code was not run again there, and the variables of the old VM are gone"
	}
	return p
}

// disconnected are the kinds of error of a broken connection.
var disconnected = []client.Kind{client.KindUnreachable, client.KindNoSuchHost, client.KindTunnelOffline, client.KindTunnelError, client.KindTunnelQuota, client.KindIntercepted, client.KindProxy}

// unread returns the error of a call whose run was not read to its end. rest says what a later
// call does.
func unread(err error, rest string) *Problem {
	p := problemOf(err).copy()
	switch {
	case refusalCode(err) == contract.CodeKernelStarting:
		p.Message = "the kernel is still starting, so nothing further was sent"
	default:
		p.Message = fmt.Sprintf("the VM could not be reached (%s). What was read is saved. If only the connection is lost, the run goes on on the VM; %s", p.Message, rest)
	}
	return p
}

// unreachable reports whether err is an error of the connection or a temporary refusal, after
// which the run probably still exists.
func unreachable(err error) bool {
	switch refusalCode(err) {
	case contract.CodeReplayed, contract.CodeRateLimited, contract.CodeClockSkew, contract.CodeShuttingDown, contract.CodeKernelStarting:
		return true
	case "":
		lost, ok := errors.AsType[*client.Error](err)
		return ok && slices.Contains(disconnected, lost.Kind)
	}
	return false
}

func internalProblem(message string) *Problem {
	return &Problem{Code: codeInternal, Message: message, Hint: "Call again. If the error persists, it is a fault of the relay: its log on stderr says more."}
}

// badSettings reports everything that is wrong with the relay's settings.
func badSettings(faults []error) *Problem {
	var lines []string
	for _, err := range faults {
		lines = append(lines, err.Error())
	}
	return &Problem{
		Code:    codeNotConfigured,
		Message: "the relay's settings are wrong: " + strings.Join(lines, "; "),
		Hint:    "Correct them in the MCP host's configuration (the relay's env block) and restart the host.",
	}
}

// resolveProblem explains why no runtime could be chosen.
func resolveProblem(err error) *Problem {
	if own, ok := errors.AsType[*Problem](err); ok {
		return own
	}
	p := &Problem{
		Code:    codeNotConfigured,
		Message: err.Error(),
		Hint:    "Ask the user to do that, then call again; no restart is needed. To use another runtime that is paired, omit runtime_name.",
	}
	if errors.Is(err, pairing.ErrNotPaired) {
		p.Hint = "Ask the user to do that, then call again; no restart is needed."
	}
	if errors.Is(err, pairing.ErrNoAddress) {
		p.Hint = "Ask the user to run these commands in a terminal on this computer, then call again; no restart is needed."
	}
	if errors.Is(err, pairing.ErrUnknownName) {
		p.Hint = "Call again with the name of a paired runtime, or without runtime_name. To add another one, ask the user to run `colab-relay pair`; no restart is needed."
	}
	if errors.Is(err, pairing.ErrAmbiguous) {
		p.Hint = "Call again with runtime_name set to one of these names."
	}
	return p
}

// brief shortens a text from the VM.
func brief(s string) string {
	s, _ = render.Clip(render.Plain(s), 1000)
	return s
}

// runProblem returns the problem of an execution that ended badly; nil for any other.
func runProblem(e contract.Execution) *Problem {
	if e.Status.OK() {
		return nil
	}
	h := hint.ForOutcome(e.Status)
	p := &Problem{Code: h.Code, Hint: h.Model}
	if e.Reason != "" {
		p.Message = saidByVM(e.Reason)
	}
	if e.Error != nil {
		p.EName, p.EValue = brief(e.Error.EName), brief(e.Error.EValue)
		switch e.Error.EName {
		case "SystemExit":
			p.Hint = "The code called exit() or sys.exit(), which ended this run only: the kernel and its variables are still there."
		case "ModuleNotFoundError":
			p.Hint = "Install it with install_packages, or upload the module with upload_to_colab; then run the code again."
		}
	}
	if p.Message == "" && p.EName != "" {
		p.Message = "the code raised " + plain.Quote(plain.Clip(strings.TrimSuffix(fmt.Sprintf("%s: %s", p.EName, p.EValue), ": "), maxInline))
	}
	if p.Message == "" {
		p.Message = "the run ended as " + h.Code
	}
	return p
}

// The hints of all packages name the commands of the command line. An extension of an MCP host
// brings the relay without it, and has a field for the pairing string instead.
var (
	runPair = lazy.Regexp("run `colab-relay pair`(?: in a terminal)?(?: on this computer)? and (to )?paste (it|[^,.;]*?)(?: there)?([,.;]|$)")
	pairCmd = lazy.Regexp("(?i)(run )`colab-relay pair`")
	printed = strings.NewReplacer("run the cell that `colab-relay bootstrap` prints", "run the cell of the release's notebook", "; for a machine that you reach by SSH, run `colab-relay ssh HOST`", "", "the MCP host's configuration (the relay's env block)", "the extension's settings")
)

// inExtension returns p in the words of an extension, whose field for the pairing string has
// that name; p itself if there is none.
func inExtension(field string, p *Problem) *Problem {
	if field == "" || p == nil {
		return p
	}
	into := fmt.Sprintf("into %q in the extension's settings", field)
	for _, text := range []*string{&p.Message, &p.Hint} {
		s := runPair().ReplaceAllString(*text, "${1}paste $2 "+strings.ReplaceAll(into, "$", "$$")+"$3")
		s = pairCmd().ReplaceAllString(s, "paste its pairing string "+strings.ReplaceAll(into, "$", "$$"))
		s = strings.ReplaceAll(s, "COLAB_PAIRING", fmt.Sprintf("%q in the extension's settings", field))
		*text = printed.Replace(s)
	}
	if strings.Contains(p.Message+p.Hint, "`colab-relay ") {
		p.Hint = strings.TrimSpace(p.Hint + " The extension brings no command `colab-relay`: to run commands, the user installs the relay's archive, too.")
	}
	return p
}
