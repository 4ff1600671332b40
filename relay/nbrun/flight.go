package nbrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// peekWait is how long the first read of a cell waits for its end. After that, the relay knows
// that the cell runs, and waits longer.
const peekWait = time.Second

// errAnswer is an answer that no executor gives.
var errAnswer = errors.New("the executor's answer does not fit the request")

// reading is what this process has read of a flight.
type reading struct {
	first    *contract.Execution // the submit's answer, not yet read
	offset   int64               // of the first event that was not read
	began    bool                // it was seen running
	peeked   bool
	lastLine string
	prompt   *Prompt // that it waits at
	end      bool    // everything was read
}

// reading returns what was read of a flight.
func (a *advance) reading(f *Flight) *reading {
	rd := a.readings[f.RequestID]
	if rd == nil {
		rd = &reading{}
		a.readings[f.RequestID] = rd
	}
	return rd
}

// head returns the first flight that has something to read; nil for none.
func (a *advance) head() *Flight {
	for _, f := range a.run().Flights {
		if !f.Ended || !a.reading(f).end {
			return f
		}
	}
	return nil
}

// read reads a flight to its end, or as far as the call's time allows, and reports whether
// there is more to do in this call.
func (a *advance) read(ctx context.Context, f *Flight) (more bool, err error) {
	rd := a.reading(f)
	rd.prompt = nil
	from := contract.Execution{ExecutionID: f.ExecutionID}
	if rd.first != nil {
		from, rd.first = *rd.first, nil
	}
	var failed error
	changed := false
	following := client.WithBehindInput(ctx)
	if a.opt.BehindInput {
		following = ctx
	}
	e, err := client.Follow(following, &peeker{a.vm, rd, &a.outputs}, from, client.FollowOptions{
		From: rd.offset, Until: a.until(), MaxBytes: contract.MaxReadBytes, Instance: f.InstanceID,
		Visit: func(e contract.Execution) bool {
			failed = a.visit(ctx, f, e)
			changed = a.changed()
			return failed == nil && !changed && (a.opt.BehindInput || client.BehindInput(e) == nil)
		},
	})
	switch {
	case failed != nil:
		return false, failed
	case err != nil:
		return a.unreadable(ctx, f, err)
	case e.End:
		rd.end = true
		return true, a.land(ctx, f, e)
	case changed:
		return true, nil
	case e.Status == contract.StatusWaitingForInput && rd.prompt != nil:
		a.run().Status, a.out.Prompt = StatusWaitingForInput, rd.prompt
		return false, nil
	case client.BehindInput(e) != nil && !a.opt.BehindInput:
		a.out.Behind = client.BehindInput(e)
		return false, nil
	}
	return time.Until(a.opt.Until) > minTimeLeft, nil // at the end of the run's time, not the call's
}

// minTimeLeft is the least time left of a call in which another cell is worth waiting for.
const minTimeLeft = 250 * time.Millisecond

// peeker shortens the first wait for a cell, so that one that runs longer is seen running, and a
// wait while outputs are to be written.
type peeker struct {
	VM
	reading *reading
	outputs *outputs
}

func (p *peeker) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	if !p.reading.peeked {
		wait, p.reading.peeked = min(wait, peekWait), true
	}
	if len(p.outputs.pending) > 0 {
		wait = min(wait, max(p.outputs.due(), peekWait))
	}
	return p.VM.Execution(ctx, id, offset, wait, maxBytes)
}

// visit takes in an answer: the state of the execution and its new events.
func (a *advance) visit(ctx context.Context, f *Flight, e contract.Execution) error {
	if err := checkAnswer(f, e); err != nil {
		return err
	}
	rd := a.reading(f)
	rd.offset = e.NextOffset
	a.out.Execution = e
	a.out.Execution.Events = nil
	c := a.run().cell(f.Handle)
	a.note(c, f, e)
	if e.KernelID == "" { // queued
		return nil
	}
	if !rd.began {
		rd.began = true
		a.outputs.start(f)
	}
	a.outputs.add(ctx, f, e)
	rd.see(f.ExecutionID, e.Events)
	a.progress(c, rd)
	if a.opt.Output != nil && len(e.Events) > 0 {
		a.opt.Output(*c, f.ExecutionID, e.Events)
	}
	if err := a.outputs.flush(ctx, a.work, false); err != nil {
		return err
	}
	a.dropWritten()
	return a.saveSometimes()
}

// checkAnswer refuses what no executor sends.
func checkAnswer(f *Flight, e contract.Execution) error {
	switch {
	case f.ExecutionID != "" && e.ExecutionID != f.ExecutionID:
		return fmt.Errorf("%w: it is about another execution", errAnswer)
	case len(e.KernelID) > maxKernelID:
		return fmt.Errorf("%w: the kernel_id has %d bytes", errAnswer, len(e.KernelID))
	case !isTime(e.StartedAt) || !isTime(e.FinishedAt):
		return fmt.Errorf("%w: its times are not of these centuries", errAnswer)
	case e.Status.Finished() && e.Status != contract.StatusCancelled && !known(e.Status):
		return fmt.Errorf("%w: the status is %.40q", errAnswer, e.Status)
	}
	return nil
}

// isTime reports whether a time, which may be missing, can be written as JSON in any time zone.
func isTime(t *time.Time) bool { return t == nil || t.Year() > 1 && t.Year() < 9999 }

// known reports whether a final status is one of the contract's.
func known(s contract.Status) bool {
	switch s {
	case contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted,
		contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost:
		return true
	}
	return false
}

// note records what an answer says of a cell that has not ended.
func (a *advance) note(c *CellRecord, f *Flight, e contract.Execution) {
	if f.Ended {
		return
	}
	at := c.attempt(f.RequestID)
	if at == nil || e.KernelID == "" {
		return
	}
	at.KernelID = e.KernelID
	if at.Started == nil && e.StartedAt != nil {
		started := e.StartedAt.UTC()
		at.Started = &started
	}
	if !e.Status.Finished() {
		c.Status = CellRunning
	}
}

// see keeps the last printed line and the open prompt.
func (rd *reading) see(executionID string, events []contract.Event) {
	for _, ev := range events {
		switch ev.Type {
		case contract.EventStream:
			rd.lastLine = lastLine(rd.lastLine, ev.Text)
		case contract.EventInputRequest:
			rd.prompt = &Prompt{ExecutionID: executionID, Text: ev.Prompt, Password: ev.Password, Offset: ev.Offset}
		default:
			continue
		}
	}
}

// lastLine returns the last line that is not blank of what was printed.
func lastLine(before, text string) string {
	const most = 200
	text = strings.TrimRight(text, " \t\r\n")
	if text == "" {
		return before
	}
	if i := strings.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// progress reports how far the run is.
func (a *advance) progress(c *CellRecord, rd *reading) {
	if a.opt.Progress == nil {
		return
	}
	p := Progress{Total: len(a.run().Plan), Index: c.Index, Title: c.Title, LastLine: rd.lastLine}
	for i := range a.run().Plan {
		if !a.run().Plan[i].pending() {
			p.Done++
		}
	}
	a.opt.Progress(p)
}

// dropWritten removes the flights whose outputs are in the notebook.
func (a *advance) dropWritten() {
	var kept []*Flight
	for _, f := range a.run().Flights {
		if f.Ended && a.reading(f).end && !a.outputs.waits(f.Handle) {
			delete(a.readings, f.RequestID)
			continue
		}
		kept = append(kept, f)
	}
	a.run().Flights = kept
}
