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
	switch {
	case errors.Is(err, client.ErrInputUnknown):
		r.out.note("it is not known whether that line was accepted, because the answer was lost")
	case contract.CodeOf(err) == contract.CodeConflict:
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

// Ask shows the prompt of a run and reads a line from the person or from stdin.
func Ask(ctx context.Context, executionID string, prompt contract.Event, std terminal.Streams) (string, error) {
	p := newPrinter(nil, Console{Streams: std})
	defer p.finish()
	// A prompt may look like a question of this program's, such as for a pairing string.
	p.note("code on the VM (run %s) asks:", plain.Line(executionID))
	prompt.Prompt = plain.Text(prompt.Prompt)
	p.event(ctx, executionID, prompt)
	p.asked = false
	text, err := p.readInput(ctx)
	if err == nil && !terminal.Is(std.In) { // nobody's Enter ended the line
		p.openLine = prompt.Prompt != "" || prompt.Password
		p.endLine(p.std.Err)
	}
	return text, err
}
