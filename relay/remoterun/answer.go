package remoterun

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

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
