package remoterun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// endOfInput is the answer of a front end of Jupyter whose input has ended: the kernel raises
// EOFError.
const endOfInput = "\x04"

// input passes a line from the person to code that waits for input, or that there is none. Of a
// run that somebody else may have started, it then answers nothing.
func (r *run) input(ctx context.Context) error {
	if r.exec.Status != contract.StatusWaitingForInput {
		return nil
	}
	text, err := "", ErrNoInput
	if !r.FromStdin {
		text, err = r.out.readInput(ctx)
	}
	switch {
	case errors.Is(err, ErrNoInput) && r.attached && !terminal.Is(r.out.std.In):
		return r.leave(err)
	case errors.Is(err, ErrNoInput):
		r.out.noteNoInput()
		text = endOfInput
	case err != nil:
		return err
	}
	r.out.asked = false
	_, err = r.Client.Input(ctx, r.answer.ExecutionID, contract.Input{Text: text, Offset: r.out.prompt, Password: r.out.password})
	refused, _ := errors.AsType[*contract.Error](err)
	switch {
	case errors.Is(err, client.ErrInputUnknown):
		r.out.note("it is not known whether that line was accepted, because the answer was lost")
	case refused != nil && refused.Code == contract.CodeConflict:
		r.out.note("that prompt has been answered elsewhere")
	default:
		return r.explain(err)
	}
	r.exec.Status = contract.StatusRunning // what it is now, the next answer tells
	return nil
}

// noteNoInput says once that the code asks for input that there is not, unless a person said so.
func (p *printer) noteNoInput() {
	if !p.noInput && !terminal.Is(p.std.In) {
		p.noInput = true
		p.note("the code asks for input, but stdin has none, so input() raises EOFError; run it in a terminal or pipe the answers")
	}
}

// readInput reads a line from the person; a terminal does not show a password. If ctx
// ends, the read is left running, because the program ends soon after.
func (p *printer) readInput(ctx context.Context) (string, error) {
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		text, err := p.readLine(ctx)
		got <- line{text, err}
	}()
	select {
	case l := <-got:
		p.openLine = p.openLine && l.err != nil // the person's Enter ended the line
		return l.text, l.err
	case <-ctx.Done():
		if p.password && terminal.Is(p.std.In) {
			<-got // ReadPassword makes the terminal show again what is typed
		}
		return "", context.Cause(ctx)
	}
}

func (p *printer) readLine(ctx context.Context) (string, error) {
	if p.password && terminal.Is(p.std.In) {
		text, err := terminal.ReadPassword(ctx, p.std.In)
		fmt.Fprintln(p.std.Err)
		return text, err
	}
	text, err := p.stdin.ReadString('\n')
	switch {
	case err == io.EOF && text == "":
		err = ErrNoInput
	case err == io.EOF:
		err = nil
	}
	return strings.TrimRight(text, "\r\n"), err
}

// ErrNotWaiting: the run does not ask for input.
var ErrNotWaiting = errors.New("the run is not waiting for input")

// recentEvents is how far before the end of a waiting run's output its input request is
// looked for: threads of the code may print after it.
const recentEvents = 1000

// Answer shows the prompt of a run, as a list of runs has it, and answers it with a line from
// the person or from stdin. It returns the run as it is then.
func Answer(ctx context.Context, vm VM, run contract.Execution, console Console) (contract.Execution, error) {
	id := run.ExecutionID
	prompt, err := promptOf(ctx, vm.Client, run)
	if err != nil {
		return contract.Execution{}, err
	}
	p := newPrinter(vm.Client.Blobs, console)
	defer p.finish()
	// A prompt may look like a question of this program's, such as for a pairing string.
	p.note("code on runtime %q (run %s) asks:", vm.Runtime, plain.Line(id))
	prompt.Prompt = plain.Text(prompt.Prompt)
	p.event(ctx, id, prompt)
	p.asked = false
	text, err := p.readInput(ctx)
	if err != nil {
		return contract.Execution{}, err
	}
	if !terminal.Is(console.In) { // nobody's Enter ended the line
		p.openLine = prompt.Prompt != "" || prompt.Password
		p.endLine(p.std.Err)
	}
	return vm.Client.Input(ctx, id, contract.Input{Text: text, Offset: &prompt.Offset, Password: prompt.Password})
}

// promptOf returns the event of the input request that the run waits in.
func promptOf(ctx context.Context, c *client.Client, run contract.Execution) (contract.Event, error) {
	var prompt *contract.Event
	e, err := client.Follow(ctx, c, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
		From: max(0, run.NextOffset-recentEvents), Available: true, MaxBytes: contract.MaxReadBytes,
		Visit: func(e contract.Execution) bool {
			for _, ev := range e.Events {
				if ev.Type == contract.EventInputRequest {
					prompt = &ev
				}
			}
			return true
		},
	})
	switch {
	case err != nil:
		return contract.Event{}, err
	case e.Status != contract.StatusWaitingForInput:
		return contract.Event{}, fmt.Errorf("%w: its status is %s", ErrNotWaiting, plain.Line(string(e.Status)))
	case prompt == nil:
		return contract.Event{}, fmt.Errorf("%w: its output has no prompt", ErrNotWaiting)
	}
	return *prompt, nil
}
