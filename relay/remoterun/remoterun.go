// Package remoterun is a person's view of runs on a VM: it starts them, prints their output,
// passes input on, and interrupts the code when the person stops waiting.
//
// It must not leave code running that no person waits for, without saying so and how to come
// back. Start reading at Run; printer.go prints events and makes the exit code.
package remoterun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// firstWait is how long the first request waits for the run, so that a quick run
	// needs only one request. The output of a longer one is printed from then on.
	firstWait = 500 * time.Millisecond
	// endWait is how long an interrupted run may take to end. An executor gives the code
	// 10 s.
	endWait = 15 * time.Second
	// submitGrace is how much longer a submit may take once the person interrupts it:
	// only a run whose id is known can be interrupted.
	submitGrace = 10 * time.Second
	// anewTimeout is how long the kernel may look for changed modules.
	anewTimeout = time.Minute
)

// ErrNoInput: the code asks for input, and stdin has none.
var ErrNoInput = errors.New("the code asks for input, but stdin has none: run it in a terminal or pipe the answers")

// VM is where the code runs.
type VM struct {
	Runtime  string // its name
	Client   *client.Client
	LastSeen runtimes.LastSeen
}

// Code is what Run runs: a program, or a cell of a notebook.
type Code struct {
	Text string
	// Program is the name of the file that Text is, as the person wrote it. It runs as
	// `python FILE` would. Without it Text is a cell, in which IPython allows magics, and
	// whose last value is shown.
	Program   string
	Arguments []string // of the program
	FromStdin bool     // so stdin has no input for the code
	Timeout   time.Duration
}

// Console is what a person sees of the run.
type Console struct {
	terminal.Streams
	PictureDir string // pictures are saved below this folder
	// Pictures is how the terminal shows pictures, besides that they are saved.
	Pictures inline.Protocol
	// Colours are those of stderr: tracebacks keep IPython's colours if it shows any.
	Colours terminal.Colours
}

// run is one run of the code.
type run struct {
	VM
	Code

	instance string // of the VM that it was submitted to
	out      *printer
	answer   contract.Execution // to the submit; once it is printed, its id alone
	exec     contract.Execution // as last printed, without events
	// packageMissing: the kernel does not have our Python package, so the program did not
	// start.
	packageMissing bool
	blockNoted     bool // see noteBlocked
	attached       bool // by Attach
}

// Run runs code to its end and prints its output. If ctx ends or stdout breaks, it
// interrupts the code. The error of code that did not succeed is ErrPrinted, an ExitCode,
// one that describes how the run ended, or ErrStillRunning.
func Run(ctx context.Context, vm VM, code Code, console Console) error {
	return (&run{VM: vm, Code: code, out: newPrinter(vm.Client.Blobs, console)}).run(ctx)
}

// Start starts code and does not wait for it. Its input() waits for an Attach or an Answer.
func Start(ctx context.Context, vm VM, code Code) (contract.Execution, error) {
	r := &run{VM: vm, Code: code}
	s := r.submission(true)
	e, err := vm.Client.Submit(ctx, s)
	if err != nil && ctx.Err() != nil {
		return e, errUnanswered
	}
	return e, unsubmitted(r.explain(err), s.RequestID)
}

// Attach prints the output of the run id from its beginning and goes on like Run. The run may
// be of an earlier kernel, so it says nothing of a new one.
func Attach(ctx context.Context, vm VM, id string, console Console) error {
	vm.LastSeen = runtimes.LastSeen{}
	r := &run{VM: vm, attached: true, instance: vm.Client.InstanceID(), out: newPrinter(vm.Client.Blobs, console), answer: contract.Execution{ExecutionID: id}}
	defer r.out.finish()
	if err := r.follow(ctx); err != nil {
		return err
	}
	return r.ended()
}

func (r *run) run(ctx context.Context) error {
	defer r.out.finish()
	err := kernelpy.Load(func(withPackage bool) (missing bool, err error) {
		r.packageMissing, r.exec = false, contract.Execution{}
		if err = r.submit(ctx, withPackage); err == nil {
			err = r.follow(ctx)
		}
		return r.packageMissing && ctx.Err() == nil, err
	})
	if err != nil {
		return err
	}
	return r.ended()
}

// errUnanswered: the person did not wait for the answer to the submit.
var errUnanswered = errors.New("the VM did not answer before the interrupt, so the run may have started: `colab-relay ps` lists the runs")

// submit submits the code. If ctx ends, it still waits for the answer, because only a run
// whose id is known can be interrupted, for at most submitGrace or until another signal.
func (r *run) submit(ctx context.Context, withPackage bool) error {
	submitting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		waiting, done := signal.NotifyContext(submitting, os.Interrupt, syscall.SIGTERM)
		defer done()
		select {
		case <-waiting.Done():
		case <-time.After(submitGrace):
		}
		cancel()
	})
	defer stop()
	s := r.submission(withPackage)
	s.WaitSeconds, s.BehindInput = firstWait.Seconds(), true
	e, err := r.Client.Submit(submitting, s)
	if err != nil && submitting.Err() != nil {
		return errUnanswered
	}
	if err != nil {
		return unsubmitted(r.explain(err), s.RequestID)
	}
	r.instance = r.Client.InstanceID()
	r.answer = e
	if e.Status == contract.StatusQueued && e.QueuePosition > 0 {
		r.out.note("waiting for %s before this one", plain.Count(e.QueuePosition, "run"))
	}
	return nil
}

// ImportAnew has the code that is submitted next import those modules anew whose files changed,
// as each program does by itself. The kernel may be busy: a caller that does not wait knows that
// code runs in the order in which it was submitted.
func ImportAnew(ctx context.Context, vm VM, wait time.Duration) error {
	call := kernelpy.Call{Function: "script.import_anew", Arguments: []any{}, Delivery: kernelpy.Display}
	s := contract.Submit{Code: "# colab-relay: " + call.Function + "\n" + call.Code(true), Unstored: true, BehindInput: true, WaitSeconds: wait.Seconds(), TimeoutSeconds: anewTimeout.Seconds()}
	e, err := vm.Client.Submit(ctx, s)
	if err == nil && e.Status.Finished() && e.Status != contract.StatusSucceeded {
		err = fmt.Errorf("the search for changed modules ended as %s", plain.Line(string(e.Status)))
	}
	if err != nil {
		return NotRun(err)
	}
	return nil
}

// NotRun returns err with the words that the code was not run.
func NotRun(err error) error { return fmt.Errorf("the code was not run: %w", err) }

// unsubmitted adds to the error of a submit whether the code was run.
func unsubmitted(err error, requestID string) error {
	if client.MayRun(err) {
		return fmt.Errorf("the code may have been submitted, and it is unknown whether it ran (%w); check `colab-relay ps --json` for request_id %s before you run it again", err, requestID)
	}
	if _, unanswered := errors.AsType[*client.Error](err); unanswered {
		return NotRun(err)
	}
	return err
}

// submission is the submit of the code. A program is an argument of our function in the
// kernel, which knows the file's name and arguments.
func (r *run) submission(withPackage bool) contract.Submit {
	s := contract.Submit{RequestID: rand.Text(), Code: r.Text, TimeoutSeconds: r.Timeout.Seconds()}
	if r.Program == "" {
		return s
	}
	call := kernelpy.Call{Function: "script.run", Arguments: []any{r.Program, kernelpy.Packed(r.Text), append([]string{}, r.Arguments...)}, Delivery: kernelpy.Display}
	s.Code = "# " + r.preview() + "\n" + call.Code(withPackage)
	s.Source, s.SourceName, s.Unstored = r.Text, r.commandLine(), true
	return s
}

// commandLine is the program's name and its arguments.
func (r *run) commandLine() string {
	return strings.Join(append([]string{r.Program}, r.Arguments...), " ")
}

// preview is what lists of runs show of a program: how it was called, and its first line.
func (r *run) preview() string {
	for line := range strings.Lines(r.Text) {
		if line = strings.TrimSpace(line); line != "" {
			return plain.Line(r.commandLine() + ": " + line)
		}
	}
	return plain.Line(r.commandLine())
}

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
	text, err := "", error(nil)
	if p.password && terminal.Is(p.std.In) {
		text, err = terminal.ReadPassword(ctx, p.std.In)
		fmt.Fprintln(p.std.Err)
	} else {
		text, err = terminal.UntilInterrupted(ctx, p.readLine)
	}
	if errors.Is(err, terminal.ErrInterrupted) {
		return "", context.Cause(ctx)
	}
	p.openLine = p.openLine && err != nil // the person's Enter ended the line
	return text, err
}

func (p *printer) readLine() (string, error) {
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
