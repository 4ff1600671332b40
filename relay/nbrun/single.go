package nbrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/shared/contract"
)

// landSingle records the end of a cell.
func (s *single) landSingle(one *Single, e contract.Execution) {
	s.outputs.end(&one.Flight, e)
	status := endOf(e.Status)
	now := s.view.byHandle[one.Handle]
	if status == CellFailed && now != nil && now.has(tagExpectFailure) {
		status = CellExpectedFailure
	}
	if one == s.now {
		s.was = status
	}
	if one == s.now || status == CellNotRun {
		defer s.dropSingle(one) // after its code is known to have run in this kernel
	}
	if one.Ended || status == CellNotRun {
		return
	}
	s.record.enter(e.KernelID, s.vm.InstanceID())
	s.record.ran(&one.Flight, status, s.vm.InstanceID())
	one.Ended = true // and kept for a call that asks what became of the cell: it must not run again
	if now == nil || now.source != one.Source {
		s.addNote("cell %d (%s) was edited while it ran: its outputs are not in the notebook, and it is dirty", one.Index, one.Handle)
	}
}

// endOf returns a cell's status after an execution with this final status.
func endOf(s contract.Status) CellStatus {
	switch s {
	case contract.StatusCancelled:
		return CellNotRun
	case contract.StatusKernelRestarted:
		return CellInterrupted
	}
	return CellStatus(s)
}

// noteEnded says that the answer is about an execution that ended before this call.
func (s *single) noteEnded(one *Single) {
	if one.Ended {
		s.addNote("this is the end of the execution that an earlier call started; the same call runs the cell again")
	}
}

// forgetEnded drops the oldest ends that nobody asked for if there are too many.
func (r *Record) forgetEnded() {
	for i := 0; i < len(r.Singles) && len(r.Singles) >= maxSingles; {
		if !r.Singles[i].Ended {
			i++
			continue
		}
		r.Singles = slices.Delete(r.Singles, i, i+1)
	}
}

func (s *single) dropSingle(one *Single) {
	s.record.Singles = slices.DeleteFunc(s.record.Singles, func(x *Single) bool { return x == one })
}

// addNote adds a remark for the answer; the report of the last run does not get it.
func (s *single) addNote(format string, args ...any) {
	s.notes = appendNote(s.notes, fmt.Sprintf(format, args...))
}

// closeSingle writes what the call has read.
func (s *single) closeSingle(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err = errors.Join(err, s.outputs.flush(ctx, s.work, true))
	s.notes = append(s.notes, s.outputs.takeNotes()...)
	if s.now == nil && len(s.record.Singles) == 0 && s.savedAt.IsZero() {
		return err
	}
	return errors.Join(err, s.save())
}

// describe returns the outcome of the call.
func (s *single) describe() Outcome {
	s.out.Notes, s.out.SavedFiles, s.out.Status = s.notes, s.outputs.saved, Status(s.was)
	if s.now == nil {
		return s.out
	}
	if s.was == "" {
		s.out.Status, s.out.CanContinue = StatusRunning, true
		if s.out.Prompt != nil {
			s.out.Status = StatusWaitingForInput
		}
		s.out.Current = &Current{CellID: s.now.Handle, Index: s.now.Index, Attempt: 1, ExecutionID: s.now.ExecutionID}
		if s.now.Started != nil {
			s.out.Current.Seconds = max(0, time.Since(*s.now.Started).Seconds())
		}
	}
	return s.out
}
