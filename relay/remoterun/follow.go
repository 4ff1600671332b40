package remoterun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// follow prints the run until it has ended. If ctx ends or stdout breaks, it ends the run.
func (r *run) follow(ctx context.Context) error {
	for !r.exec.End && r.out.broken == nil {
		err := r.print(ctx)
		switch {
		case r.exec.End: // also when ctx has ended meanwhile
		case ctx.Err() != nil:
			return r.end(ctx)
		case err != nil:
			return err
		}
	}
	switch {
	case r.out.broken == nil:
		return nil
	case r.exec.End:
		return fmt.Errorf("cannot write to stdout: %v", r.out.broken)
	}
	if err := r.end(ctx); err != nil {
		return fmt.Errorf("cannot write to stdout (%v): %w", r.out.broken, err)
	}
	return fmt.Errorf("cannot write to stdout (%v): the run ended as %s on the VM", r.out.broken, r.exec.Status)
}

// print answers the input request that the code waits for, if any, and prints events
// until the next input request, the end of the run, or an error of stdout.
func (r *run) print(ctx context.Context) error {
	err := r.input(ctx)
	if err == nil {
		err = r.read(ctx)
	}
	return r.lost(ctx, err)
}

// read prints events until the next input request, the end of the run, or an error of
// stdout.
func (r *run) read(ctx context.Context) error {
	alreadyBroken, answer := r.out.broken != nil, r.answer
	r.answer = contract.Execution{ExecutionID: answer.ExecutionID}
	following := ctx
	if !r.blockNoted {
		following = client.WithBehindInput(ctx)
	}
	_, err := client.Follow(following, r.Client, answer, client.FollowOptions{
		From: r.exec.NextOffset,
		Visit: func(e contract.Execution) bool {
			r.visit(ctx, e)
			return !r.noteBlocked(e) && (alreadyBroken || r.out.broken == nil)
		},
	})
	return r.explain(err)
}

// noteBlocked says that the run is queued behind one that waits for input. It says so once:
// a hostile executor could report another such run in each answer.
func (r *run) noteBlocked(e contract.Execution) (noted bool) {
	b := client.BehindInput(e)
	if b == nil || r.blockNoted {
		return false
	}
	r.blockNoted = true
	r.out.note("waiting for %s. %s", hint.Asking(b), hint.ForPrompt(b).Person)
	return true
}

// visit prints the events of an answer.
func (r *run) visit(ctx context.Context, e contract.Execution) {
	events := e.Events
	e.Events = nil
	if e.KernelID != r.exec.KernelID {
		r.checkKernel(e.KernelID)
	}
	r.exec = e
	for _, ev := range events {
		if r.Program != "" && kernelpy.IsMissing(ev.Data) {
			r.packageMissing = true
		}
		r.out.event(ctx, e.ExecutionID, ev)
	}
}

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
func Ask(ctx context.Context, runtime, executionID string, prompt contract.Event, std terminal.Streams) (string, error) {
	p := newPrinter(nil, Console{Streams: std})
	defer p.finish()
	// A prompt may look like a question of this program's, such as for a pairing string.
	p.note("code on runtime %q (run %s) asks:", runtime, plain.Line(executionID))
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
