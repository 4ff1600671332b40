package nbrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
	"colabrelay/shared/contract"
)

// enemy is an executor without a kernel, whose answers a test makes up.
type enemy struct {
	answer func(e *contract.Execution, s contract.Submit)
	runs   map[string]contract.Execution
}

func (v *enemy) InstanceID() string { return "instance" }

func (v *enemy) Submit(_ context.Context, s contract.Submit) (contract.Execution, error) {
	e := contract.Execution{
		ExecutionID: fmt.Sprintf("e%d", len(v.runs)), RequestID: s.RequestID, Status: contract.StatusSucceeded, KernelID: "kernel", End: true,
	}
	v.answer(&e, s)
	if v.runs == nil {
		v.runs = map[string]contract.Execution{}
	}
	v.runs[e.ExecutionID] = e
	return e, nil
}

func (v *enemy) SubmitTo(ctx context.Context, _ string, s contract.Submit) (contract.Execution, error) {
	return v.Submit(ctx, s)
}

func (v *enemy) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (contract.Execution, error) {
	e, known := v.runs[id]
	if !known {
		return e, &contract.Error{Code: contract.CodeNotFound}
	}
	if offset > 0 {
		e.Events = nil
	}
	return e, nil
}

func (v *enemy) Interrupt(_ context.Context, id string) (contract.Execution, error) {
	return v.runs[id], nil
}

func (v *enemy) CancelQueued(ctx context.Context, id string) (contract.Execution, error) {
	return v.Interrupt(ctx, id)
}

func (v *enemy) Blob(context.Context, string, contract.Blob, io.Writer) error { return errCut }

func (v *enemy) List(context.Context, int) (contract.ExecutionList, error) {
	return contract.ExecutionList{}, nil
}

func (v *enemy) Probe(context.Context) (p contract.Probe, err error) {
	p.Limits.AfterRequestID = true
	return p, nil
}

func (v *enemy) CurrentKernel(context.Context) (contract.Kernel, error) {
	return contract.Kernel{KernelID: "kernel"}, nil
}

func (v *enemy) RestartKernel(ctx context.Context, _ string) (contract.Kernel, error) {
	return v.CurrentKernel(ctx)
}

// A time in a zone of the far future has no form as JSON in another zone: the record could not
// be written any more.
func TestTimesOfAHostileExecutorDoNotSpoilTheRecord(t *testing.T) {
	t.Parallel()
	var late time.Time
	if err := json.Unmarshal([]byte(`"9999-12-31T23:59:59-23:59"`), &late); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(e *contract.Execution, s contract.Submit){
		"started":  func(e *contract.Execution, _ contract.Submit) { e.StartedAt = &late },
		"finished": func(e *contract.Execution, _ contract.Submit) { e.FinishedAt = &late },
	} {
		b := write(t, "1")
		if got := b.advance(b.spec(), &enemy{answer: answer}, long); got.err == nil || !strings.Contains(got.err.Error(), errAnswer.Error()) {
			t.Errorf("%s: a run with it: %v", name, got.err)
		}
		if _, err := loadRecord(b.dir, b.path); err != nil {
			t.Errorf("%s: the record: %v", name, err)
		}
		b = write(t, "1")
		if _, err := b.runCell(&enemy{answer: answer}, "c0", long); err == nil || !strings.Contains(err.Error(), errAnswer.Error()) {
			t.Errorf("%s: a cell with it: %v", name, err)
		}
	}
}

func TestCountsOfAHostileExecutorAreNotInTheNotebook(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	b.finish(b.spec(), &enemy{answer: func(e *contract.Execution, _ contract.Submit) {
		e.ExecutionCount = -5
		e.Events = []contract.Event{{Type: contract.EventExecuteResult, ExecutionCount: -7, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`)}}}
		e.NextOffset = 1
	}}, StatusSucceeded)
	file, err := notebook.OpenFile(b.path, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := file.Read()
	if err != nil {
		t.Fatal(err)
	}
	if text := string(d.Bytes()); strings.Contains(text, "-5") || strings.Contains(text, "-7") || !strings.Contains(text, `"execute_result"`) {
		t.Errorf("nbformat allows no negative counts:\n%s", text)
	}
}

func TestARecordThatWouldBeTooLargeLosesDetailsOnly(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names := make([]string, 100)
	for i := range names {
		names[i] = strings.Repeat("n", 800)
	}
	for i := range 100 {
		c := CellRecord{Handle: fmt.Sprint("c", i), Status: CellFailed}
		for range 5 {
			c.Attempts = append(c.Attempts, Attempt{RequestID: "r", Status: contract.StatusFailed, Error: &Failure{EName: "E", EValue: strings.Repeat("v", maxValue)}})
		}
		for range 8 {
			c.SkippedBecause = append(c.SkippedBecause, Because{Cell: "c", Names: names})
		}
		r.record.Run.Plan = append(r.record.Run.Plan, c)
		r.record.Facts[c.Handle] = dataflow.Facts{Stores: names, Imports: names}
	}
	r.record.prune()
	if _, err := checkpoint.Save(b.dir, "before", r.record); !errors.Is(err, checkpoint.ErrTooLarge) {
		t.Fatal("the record is not too large")
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	got, err := loadRecord(b.dir, b.path)
	if err != nil || len(got.Run.Plan) != 100 || got.Run.Plan[99].Failure().EName != "E" || len(got.Run.Plan[0].SkippedBecause) != 1 {
		t.Errorf("%v, %d cells", err, len(got.Run.Plan))
	}
}

// Each failure cancels the cells that were submitted behind it. A notebook of cells that all fail
// must not make the relay submit sixteen for each.
func TestFailuresDoNotMultiplySubmits(t *testing.T) {
	t.Parallel()
	const cells = 40
	sources, ended, submits := make([]src, cells), map[string]contract.Status{}, 0
	for i := range sources {
		sources[i] = "1 / 0"
	}
	b := write(t, sources...)
	s := b.spec()
	s.OnError = ContinueAfter
	b.finish(s, &enemy{answer: func(e *contract.Execution, s contract.Submit) {
		submits++
		e.Status, e.Error = contract.StatusFailed, &contract.ExecutionError{EName: "ZeroDivisionError"}
		if before := ended[s.AfterRequestID]; s.AfterRequestID != "" && !s.AfterAny && before != contract.StatusSucceeded {
			e.Status, e.Error, e.KernelID = contract.StatusCancelled, nil, ""
		}
		ended[s.RequestID] = e.Status
	}}, StatusFailed)
	if most := afterFailure*cells + window; submits > most {
		t.Errorf("%d submits for %d cells, more than %d", submits, cells, most)
	}
}
