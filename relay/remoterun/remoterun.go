// Package remoterun is a person's view of runs on a VM: it starts them, prints their output,
// passes input on, and interrupts the code when the person stops waiting.
//
// It must not leave code running that no person waits for, without saying so and how to come
// back. Start reading at Run; printer.go prints events, ending.go makes the exit code.
package remoterun

import (
	"context"
	"errors"
	"time"

	"colabrelay/relay/client"
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
	endWait time.Duration

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
	return (&run{VM: vm, Code: code, endWait: endWait, out: newPrinter(vm.Client.Blobs, console)}).run(ctx)
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
	r := &run{VM: vm, attached: true, endWait: endWait, instance: vm.Client.InstanceID(), out: newPrinter(vm.Client.Blobs, console), answer: contract.Execution{ExecutionID: id}}
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
