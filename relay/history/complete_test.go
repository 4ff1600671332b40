package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// vm is a VM that knows one run, and sends two events in each answer.
type vm struct {
	instance string
	recorder client.Recorder
	status   contract.Status
	events   int64
}

func (v *vm) InstanceID() string { return v.instance }

func (v *vm) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (contract.Execution, error) {
	if id != "e1" {
		return contract.Execution{}, &contract.Error{Code: contract.CodeNotFound}
	}
	e := answer(id, v.status)
	for n := offset; n < min(offset+2, v.events); n++ {
		e.Events = append(e.Events, stream(n, fmt.Sprint(n)))
	}
	e.NextOffset = min(offset+2, v.events)
	e.End = v.status.Finished() && e.NextOffset == v.events
	v.recorder.Answered(v.instance, e)
	return e, nil
}

func TestCompleteFetchesWhatIsMissing(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	v := &vm{instance: "vm", recorder: r, status: contract.StatusRunning, events: 5}
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "0")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(3, "3")))
	written(t, s)
	run := wantTexts(t, s, "e1", "0", "gap 1-3 true", "3")
	if !s.Lacks(run) {
		t.Error("nothing is missing")
	}
	run, err := s.Complete(t.Context(), v, run)
	if err != nil || run.Status != contract.StatusRunning {
		t.Errorf("%+v, %v", run, err)
	}
	wantTexts(t, s, "e1", "0", "1", "2", "3", "4")

	v.status, v.events = contract.StatusSucceeded, 8
	run, err = s.Complete(t.Context(), v, run)
	if err != nil || run.Status != contract.StatusSucceeded || s.Lacks(run) {
		t.Errorf("%+v, %v", run, err)
	}
	wantTexts(t, s, "e1", "0", "1", "2", "3", "4", "5", "6", "7")
}

func TestCompleteFailsWhereTheVMIsAnotherOne(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	r.Submitted("old", submit("1"), answer("e2", contract.StatusRunning, stream(0, "0")))
	written(t, s)
	run := wantTexts(t, s, "e2", "0")
	got, err := s.Complete(t.Context(), &vm{instance: "new", recorder: r}, run)
	refused, ok := err.(*contract.Error)
	if !ok || refused.Code != contract.CodeNewInstance || got.ExecutionID != "e2" {
		t.Errorf("%+v, %v", got, err)
	}
}
