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
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

// Codes of this package. Others are of package hint, contract.Code, client.Kind and, for
// runs that went wrong, contract.Status.
const (
	codeBadRequest    = hint.CodeBadRequest
	codeInternal      = hint.CodeInternal
	codeNotConfigured = hint.CodeNotConfigured
	codeCancelled     = hint.CodeCancelled
)

var cancelledProblem = &Problem{
	Code:    codeCancelled,
	Message: "the host cancelled this call; only the waiting ended, and a run that was submitted continues",
	Hint:    hint.Of(context.Canceled).Model,
}

// problemOf translates any error of a call. Package hint knows its code and its next step.
func problemOf(err error) *Problem {
	if own, ok := errors.AsType[*Problem](err); ok {
		return own
	}
	if wrong, ok := errors.AsType[*ArgumentError](err); ok {
		return &Problem{Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: %s: %v", wrong.name, wrong.err), Hint: "Call again with other values."}
	}
	h, subject := hint.Of(err), hint.SubjectOf(err)
	p := &Problem{Code: h.Code, Message: ownMessage(err), Hint: h.Model}
	if ended, ok := errors.AsType[*kernelcall.EndedError](err); ok {
		if p = runProblem(ended.Last); subject != 0 {
			p.Hint = h.Model
		}
		return p
	}
	failed, _ := errors.AsType[*client.Error](err)
	refused, _ := errors.AsType[*contract.Error](err)
	switch {
	case h.Code == codeCancelled && subject == hint.Transfer:
		p.Message = "the host cancelled this call; what was transferred until then is kept"
	case h.Code == codeCancelled:
		p.Message = cancelledProblem.Message
	case failed != nil && h.Code == string(failed.Kind) && h.Model == failed.Hint: // else it is the cause of another error
		p.lost(failed)
	case h.Code == string(client.KindTimeout):
		p.Message = "no answer arrived in time"
	case h.Code == string(contract.CodeNewInstance):
		p.Message = cmp.Or(newVM[subject], "the VM behind this address is a new one; the code was not run again there, and the variables of the old VM are gone")
	case refused != nil && h.Code == string(contract.CodeKernelBusy) && client.WaitsForInput(refused.Behind) != nil:
		p.Message = "the kernel is occupied by " + hint.Asking(refused.Behind)
		p.Hint += " Then call again."
	}
	return p
}

// lost says of a call that no executor answered what may have been done. The same call finds again
// what it submitted.
func (p *Problem) lost(failed *client.Error) {
	p.Message, p.arrived = failed.Message, client.MayHaveArrived(failed)
	if client.MayRun(failed) {
		p.Message += "; the code may have been submitted"
		p.Hint = "Call again with the same arguments: the call finds what it submitted, and nothing runs twice. For the connection: " + p.Hint
		p.arrived = false // this says so
	}
}

// ownMessage returns the message of an error, in which an executor's refusal that caused it is
// quoted.
func ownMessage(err error) string {
	refused, ok := errors.AsType[*contract.Error](err)
	if !ok {
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

// refusalCode returns the code of the executor's refusal, or "" for any other error.
func refusalCode(err error) contract.Code {
	return contract.CodeOf(err)
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

func internalProblem(message string) *Problem { return problemOf(errors.New(message)) }

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
	p := problemOf(err)
	if p.Code == codeInternal {
		p.Code, p.Hint = codeNotConfigured, "Ask the user to do that, then call again; no restart is needed. To use another runtime that is paired, omit runtime_name."
	}
	return p
}

// brief shortens a text from the VM.
func brief(s string) string {
	s, _ = render.Clip(render.Plain(s), 1000)
	return s
}

// runProblem returns the problem of an execution that ended badly.
func runProblem(e contract.Execution) *Problem {
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
	if field == "" {
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
