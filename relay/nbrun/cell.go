package nbrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
	"colabrelay/shared/contract"
)

// CellSpec says which cell RunCell runs.
type CellSpec struct {
	Path    string // of the notebook
	Handle  string
	Save    Save          // SaveInPlace or SaveNone
	Timeout time.Duration // 0 means contract.DefaultTimeout, or what the cell's tag timeout= says
	Runtime string
}

// RunCell runs one cell of the notebook at path, in one execution and without retries, or
// attaches to it while it runs with the same source. ErrConflict means that it runs with
// another one, ErrBusy that a run of the whole notebook is being continued by another call.
func RunCell(ctx context.Context, vm VM, dir string, c CellSpec, o Options) (Outcome, error) {
	r, err := openRecord(dir, c.Path, false)
	if err != nil {
		return Outcome{}, err
	}
	defer r.Close()
	r.spec.Save = c.Save
	s := &single{advance: &advance{Run: r, vm: vm, opt: o}, asked: c}
	err = s.run(ctx)
	err = s.closeSingle(ctx, err)
	return s.describe(), err
}

// single carries out one call of RunCell.
type single struct {
	*advance
	asked CellSpec
	now   *Single // the cell that is run
	was   CellStatus
}

func (s *single) run(ctx context.Context) (err error) {
	if s.values, err = parameters.Parse(""); err != nil {
		return err
	}
	s.outputs.begin(s.asked.Save != SaveNone, s.vm, s.opt.SaveText)
	if err := s.look(); err != nil {
		return err
	}
	c, err := s.target()
	if err != nil {
		return err
	}
	if s.vm.InstanceID() == "" {
		if _, err := s.vm.CurrentKernel(ctx); err != nil {
			return err
		}
	}
	if err := s.attach(ctx, c); err != nil {
		return err
	}
	if s.was != "" {
		return nil
	}
	if s.now == nil {
		if err := s.start(ctx, c); err != nil {
			return err
		}
	}
	return s.follow(ctx, s.now, s.opt.Until)
}

// target returns the cell that the call names.
func (s *single) target() (*cell, error) {
	if c := s.view.byHandle[s.asked.Handle]; c != nil {
		return c, nil
	}
	i, err := s.view.document.Find(s.asked.Handle)
	if err != nil {
		return nil, err
	}
	if found := s.view.document.Cell(i); found.Type != notebook.Code {
		return nil, fmt.Errorf("%w: cell %d is a %s cell: only code cells can be run", ErrSpec, i, found.Type)
	}
	return nil, fmt.Errorf("%w: cell %d is blank: there is nothing to run", ErrSpec, i)
}

// attach finds the cell among those that earlier calls started. Those that have ended are
// recorded.
func (s *single) attach(ctx context.Context, c *cell) error {
	for _, f := range s.flying() {
		if f.Handle == c.handle && f.InstanceID == s.vm.InstanceID() {
			return fmt.Errorf("%w: it belongs to an unfinished run of the notebook, which run_notebook continues", ErrConflict)
		}
	}
	for _, one := range slices.Clone(s.record.Singles) {
		if one.Handle == c.handle && one.Source == c.source {
			s.now = one // its end, if it has ended meanwhile, is this call's answer
			s.noteEnded(one)
		}
		if err := s.catchUp(ctx, one); err != nil {
			return err
		}
		switch {
		case one.Handle != c.handle || one == s.now || !slices.Contains(s.record.Singles, one):
		case one.Ended:
			s.dropSingle(one) // of a source that nobody asks for any more
		default:
			return fmt.Errorf("%w: wait for its end, or interrupt the execution %s", ErrConflict, one.ExecutionID)
		}
	}
	if s.now != nil && s.was == "" && !slices.Contains(s.record.Singles, s.now) {
		s.now = nil // it did not run
	}
	return nil
}

// catchUp reads what the VM has of a cell that an earlier call started.
func (s *single) catchUp(ctx context.Context, one *Single) error {
	if one.Ended && one != s.now { // a call for this cell reports it
		return nil
	}
	if one.InstanceID != s.vm.InstanceID() {
		s.dropSingle(one)
		s.addNote("cell %d (%s) was running on a VM that was replaced: its end is not known", one.Index, one.Handle)
		return nil
	}
	if one.ExecutionID == "" {
		if err := s.findIDs(ctx, []*Flight{&one.Flight}); err != nil {
			return err
		}
	}
	now := s.view.byHandle[one.Handle]
	switch {
	case one.ExecutionID != "":
		return s.follow(ctx, one, time.Now())
	case one.Handle == s.asked.Handle && now != nil && now.sent == one.Sent:
		return s.send(ctx, one, now.code)
	}
	s.dropSingle(one) // it was never accepted
	return nil
}

// start submits the cell, after recording it on disk.
func (s *single) start(ctx context.Context, c *cell) error {
	s.record.forgetEnded()
	if len(s.record.Singles) >= maxSingles {
		return fmt.Errorf("%w: %d cells of this notebook are waiting or running already", ErrSpec, maxSingles)
	}
	timeout := c.timeout(contract.DefaultTimeout)
	if s.asked.Timeout > 0 {
		timeout = min(s.asked.Timeout, contract.MaxTimeout).Seconds()
	}
	s.record.Runtime = s.asked.Runtime
	s.now = &Single{Index: c.index, Title: c.title, Save: s.asked.Save, Flight: Flight{
		Handle: c.handle, RequestID: rand.Text(), InstanceID: s.vm.InstanceID(),
		Source: c.source, Sent: c.sent, Timeout: timeout, SubmittedAt: time.Now().UTC(),
	}}
	s.record.Singles = append(s.record.Singles, s.now)
	s.record.keepCode(c)
	if err := s.save(); err != nil {
		s.dropSingle(s.now)
		return err
	}
	return s.send(ctx, s.now, c.code)
}

func (s *single) send(ctx context.Context, one *Single, code string) error {
	wait := max(0, min(singleWait, time.Until(s.opt.Until)*9/10).Seconds())
	e, err := s.vm.SubmitTo(ctx, one.InstanceID, one.submit(code, wait))
	var refused *contract.Error
	if errors.As(err, &refused) {
		s.dropSingle(one)
	}
	if err != nil {
		return err
	}
	one.ExecutionID = e.ExecutionID
	s.reading(&one.Flight).first = &e
	return nil
}

// follow reads a cell to its end, or until then.
func (s *single) follow(ctx context.Context, one *Single, until time.Time) error {
	rd := s.reading(&one.Flight)
	rd.prompt = nil
	from := contract.Execution{ExecutionID: one.ExecutionID}
	if rd.first != nil {
		from, rd.first = *rd.first, nil
	}
	var failed error
	e, err := client.Follow(client.WithBehindInput(ctx), &peeker{s.vm, rd, &s.outputs}, from, client.FollowOptions{
		From: rd.offset, Until: until, Available: !until.After(time.Now()), MaxBytes: contract.MaxReadBytes, Instance: one.InstanceID,
		Visit: func(e contract.Execution) bool {
			failed = s.visitSingle(ctx, one, e)
			return failed == nil && client.BehindInput(e) == nil
		},
	})
	switch {
	case failed != nil:
		return failed
	case refusedAs(err, contract.CodeNotFound), refusedAs(err, contract.CodeNewInstance):
		s.dropSingle(one)
		s.addNote("the VM no longer has the execution of cell %d (%s): how it ended is unknown", one.Index, one.Handle)
		s.was = CellLost
		return nil
	case err != nil:
		return err
	case e.End:
		s.landSingle(one, e)
	case e.Status == contract.StatusWaitingForInput:
		s.out.Prompt = rd.prompt
	}
	s.out.Behind = client.BehindInput(e)
	return nil
}

func (s *single) visitSingle(ctx context.Context, one *Single, e contract.Execution) error {
	if err := checkAnswer(&one.Flight, e); err != nil {
		return err
	}
	rd := s.reading(&one.Flight)
	rd.offset = e.NextOffset
	if one == s.now {
		s.out.Execution = e
		s.out.Execution.Events = nil
	}
	if e.KernelID == "" {
		return nil
	}
	if e.StartedAt != nil {
		one.Started = e.StartedAt
	}
	if !rd.began {
		rd.began = true
		s.outputs.start(&one.Flight)
	}
	s.outputs.add(ctx, &one.Flight, e)
	rd.see(one.ExecutionID, e.Events)
	if one != s.now {
		return nil
	}
	if s.opt.Output != nil && len(e.Events) > 0 {
		s.opt.Output(CellRecord{Handle: one.Handle, Index: one.Index, Title: one.Title, Status: CellRunning}, one.ExecutionID, e.Events)
	}
	if s.opt.Progress != nil {
		s.opt.Progress(Progress{Total: 1, Index: one.Index, Title: one.Title, LastLine: rd.lastLine})
	}
	return s.outputs.flush(ctx, s.work, false)
}
