package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Bounds of the forms that ask a person for input().
const (
	maxForms = 5 // of one call
	// leastForm is the shortest time in which a person can answer. With less left of the
	// call, no form is shown. sendTime of it remains for sending the answer to the VM.
	leastForm = 3 * time.Second
	sendTime  = time.Second
	// maxUnanswered bounds the prompts that are not shown again, oldest forgotten first.
	maxUnanswered = 64
	maxTyped      = 100_000 // characters, as for provide_input
)

// forms asks the person at the host for the lines that input() waits for (MCP's
// elicitation/create, form mode). It never asks for a password: the specification forbids
// that, because the answer passes through the host.
type forms struct {
	host  *stdio
	shown atomic.Bool   // the host declared in initialize that it shows forms
	turn  chan struct{} // one entry while a form is open: people answer one at a time

	mu         sync.Mutex
	unanswered []promptID // declined, cancelled, or not answered in time
}

// promptID names one prompt of one run.
type promptID struct {
	execution string
	offset    int64
}

// initialize reads what the host declares. An empty elicitation object means forms only.
func (f *forms) initialize(params json.RawMessage) {
	var p struct {
		Capabilities struct {
			Elicitation *struct{ Form, URL json.RawMessage }
		}
	}
	declared := json.Unmarshal(params, &p) == nil && p.Capabilities.Elicitation != nil
	f.shown.Store(declared && (!isNull(p.Capabilities.Elicitation.Form) || isNull(p.Capabilities.Elicitation.URL)))
}

// forCall returns f if the call may show forms, otherwise nil. A revision without initialize
// has no requests to the host.
func (f *forms) forCall(c *callParams) *forms {
	if !f.host.relay.cfg.Elicit || c.modern() || !f.shown.Load() {
		return nil
	}
	return f
}

// begin reports whether to show the prompt, and reserves the person's attention. If it
// returns true, end must be called.
func (f *forms) begin(p promptID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.unanswered, p) {
		return false
	}
	select {
	case f.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// end remembers a prompt that was not answered.
func (f *forms) end(p promptID, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	<-f.turn
	if answered {
		return
	}
	if len(f.unanswered) == maxUnanswered {
		f.unanswered = slices.Delete(f.unanswered, 0, 1)
	}
	f.unanswered = append(f.unanswered, p)
}

// lineSchema is the form: one field, which may stay empty.
var lineSchema = json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"text":{"type":"string","title":"Answer","maxLength":%d}}}`, maxTyped))

// ask shows a form and returns the line that the person typed. It is not ok if the person
// declined or gave no valid answer before ctx ended.
func (f *forms) ask(ctx context.Context, message string) (line string, ok bool) {
	result, err := f.host.ask(ctx, string(mcp.MethodElicitationCreate), map[string]any{"message": message, "requestedSchema": lineSchema})
	var answer struct {
		Action  mcp.ElicitationResponseAction
		Content struct{ Text string }
	}
	if err != nil || json.Unmarshal(result, &answer) != nil || answer.Action != mcp.ElicitationResponseActionAccept {
		return "", false
	}
	return answer.Content.Text, utf8.RuneCountInString(answer.Content.Text) <= maxTyped
}

// askPerson shows the prompt that the run waits at in a form, if the call may, and gives the
// answer to the run. It reports whether to read on: the run waits no longer at that prompt.
func (r *reading) askPerson(ctx context.Context, until time.Time) (more bool) {
	p, c := r.col.Prompt(), r.c
	if c.forms == nil || c.formsShown >= maxForms || time.Until(until) < leastForm ||
		r.exec.Status != contract.StatusWaitingForInput || p == nil || p.Password {
		return false
	}
	id := promptID{r.exec.ExecutionID, p.Offset}
	if !c.forms.begin(id) {
		return false
	}
	c.formsShown++
	asking, stop := context.WithDeadline(ctx, until.Add(-sendTime))
	line, ok := c.forms.ask(asking, promptMessage(c.target.Name, id.execution, p.Text))
	stop()
	c.forms.end(id, ok)
	if !ok {
		return false
	}
	_, err := c.target.Client.Input(ctx, id.execution, contract.Input{Text: line, Offset: &p.Offset})
	switch {
	case err == nil:
	case refusalCode(err) == contract.CodeConflict:
		c.warn("The user's answer to %q was not used: the run no longer waited there.", brief(p.Text))
	default:
		c.warn("The user's answer could not be given to the run (%s).", problemOf(err).Message)
		return false
	}
	return true
}

// promptMessage is what a form says. The prompt is the VM's own text.
func promptMessage(runtime, execution, prompt string) string {
	prompt, _ = render.Clip(plain.Text(prompt), contract.MaxBehindPrompt)
	return fmt.Sprintf("Code on the runtime %q (run %s) asks for a line of input. Do not enter a password or key.\n\n%s", runtime, clipName(plain.Line(execution)), prompt)
}
