package nbrun

import (
	"context"
	"errors"

	"colabrelay/relay/client"
	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
)

// facts returns what is known of each cell's names; nil where nothing is. The kernel analyses
// the code that the record has no facts of.
func (a *advance) facts(ctx context.Context, cells []*cell) ([]*dataflow.Facts, error) {
	missing := a.record.withoutFacts(cells)
	if len(missing) > 0 {
		if err := a.analyse(ctx, missing); err != nil {
			return nil, err
		}
	}
	all := make([]*dataflow.Facts, len(cells))
	for i, c := range cells {
		all[i] = a.record.factsOf(c.sent)
	}
	return all, nil
}

// sentCode is code with its digest.
type sentCode struct{ sent, text string }

// withoutFacts returns the code of these cells, and the code that ran, of which there are no facts.
func (r *Record) withoutFacts(cells []*cell) (missing []sentCode) {
	seen := map[string]bool{}
	add := func(c sentCode) {
		if r.factsOf(c.sent) == nil && !seen[c.sent] {
			seen[c.sent] = true
			missing = append(missing, c)
		}
	}
	for _, c := range cells {
		add(sentCode{c.sent, c.code})
	}
	for _, ran := range r.Life.Runs {
		if text, kept := r.Code[ran.Sent]; kept && len(missing) < dataflow.MaxCells {
			add(sentCode{ran.Sent, text})
		}
	}
	return missing
}

// factsOf returns the facts of code with this digest; nil if there are none.
func (r *Record) factsOf(sent string) *dataflow.Facts {
	f, known := r.Facts[sent]
	if !known {
		f, known = r.passing[sent]
	}
	if !known {
		return nil
	}
	return &f
}

// keepCode keeps the code of a cell that is sent until its facts are known: what ran must be
// known after the cell was edited, too. Beyond notebook.MaxSourceBytes in all, nothing is kept, and
// the cell counts as one that may have written everything.
func (r *Record) keepCode(c *cell) {
	if r.factsOf(c.sent) == nil && r.codeBytes+len(c.code) <= notebook.MaxSourceBytes {
		r.codeBytes += len(c.code) - len(r.Code[c.sent])
		r.Code[c.sent] = c.code
	}
}

// dropCode deletes the code that neither ran in this kernel nor is in flight.
func (r *Record) dropCode() {
	needed := map[string]bool{}
	for _, ran := range r.Life.Runs {
		needed[ran.Sent] = true
	}
	for _, f := range r.Run.Flights {
		needed[f.Sent] = true
	}
	for _, s := range r.Singles {
		needed[s.Sent] = true
	}
	for sent := range r.Code {
		if !needed[sent] {
			r.learned(sent)
		}
	}
}

// learned deletes code that is not needed any more.
func (r *Record) learned(sent string) {
	r.codeBytes -= len(r.Code[sent])
	delete(r.Code, sent)
}

// analyse asks the kernel for the facts of code. Without an answer, nothing is known of it. An
// error means that the VM can't be reached, or that the call's time is over.
func (a *advance) analyse(ctx context.Context, missing []sentCode) error {
	due, cancel := context.WithDeadline(ctx, a.opt.Until)
	defer cancel()
	sources := make([]string, len(missing))
	for i := range missing {
		sources[i] = missing[i].text
	}
	found, err := dataflow.Analyse(due, a.vm, sources)
	var unreachable *client.Error
	switch {
	case due.Err() != nil && ctx.Err() == nil:
		return errEnough
	case errors.As(err, &unreachable) || ctx.Err() != nil:
		return err
	case err != nil:
		a.addNote("which cells depend on each other could not be determined: %s", plain.Line(err.Error()))
		return nil
	}
	for i, c := range missing[:min(len(missing), len(found))] {
		a.record.learn(c.sent, found[i])
	}
	return nil
}

// learn keeps the facts of code. Those that another call may know better are kept for this call
// only, and their code stays.
func (r *Record) learn(sent string, f dataflow.Facts) {
	if f.Passing {
		r.passing[sent] = f
		return
	}
	r.Facts[sent] = f
	r.learned(sent)
}

// errEnough ends a call: there is more to do, and the next call does it.
var errEnough = errors.New("the call's time is over")
