package chunked

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// fakeVM does what the executor and loop.py do, in memory, and fails at random. It reaches
// states and orders of events that are too rare to test with a real VM. Each call lets the
// running batch continue for some iterations.
type fakeVM struct {
	t *testing.T
	r *rand.Rand

	instance, kernel int
	runs             map[string]kernelRecord // in the kernel, as colab_relay_runs
	saved            map[string]kernelRecord // as by save_kernel_state
	hasPackage       bool                    // the kernel has the Python package
	batches          map[string]*fakeBatch
	order            []*fakeBatch

	done     map[int64]bool // iterations that some kernel completed
	inKernel map[int64]bool // iterations that this kernel completed
	repeated map[string]int // how many iterations a kernel completed twice; must stay empty
	killed   bool           // the relay dies at this call
	onKill   func()         // saves what is on its disk then
	odds     float64        // of each fault at each call
}

// kernelRecord is the kernel's record of a run.
type kernelRecord struct {
	setup string
	done  int64
}

type fakeBatch struct {
	contract.Execution
	code   string
	order  order
	begun  bool
	unsent marker // of completed iterations that were not reported yet
}

func newFakeVM(t *testing.T, r *rand.Rand) *fakeVM {
	f := &fakeVM{t: t, r: r, done: map[int64]bool{}, repeated: map[string]int{}, odds: .04}
	f.newVM()
	return f
}

func (f *fakeVM) newVM() {
	f.instance++
	f.batches, f.order = map[string]*fakeBatch{}, nil
	f.newKernel()
}

func (f *fakeVM) newKernel() {
	f.kernel++
	f.runs, f.inKernel, f.hasPackage = map[string]kernelRecord{}, map[int64]bool{}, false
}

func (f *fakeVM) InstanceID() string { return fmt.Sprint("vm-", f.instance) }

func (f *fakeVM) chance() bool { return f.r.Float64() < f.odds }

// fault makes the VM fail in some way, or in none.
func (f *fakeVM) fault() {
	switch {
	case f.chance():
		f.end(contract.StatusKernelDied)
		f.newKernel()
	case f.chance(): // the executor is killed and started again
		f.end(contract.StatusLost)
		f.newKernel()
	case f.r.Float64() < f.odds*f.odds:
		f.newVM()
	case f.chance():
		f.end(contract.StatusInterrupted)
	case f.chance():
		f.end(contract.StatusTimedOut)
	case f.chance() && f.running() == nil:
		for key, run := range f.runs { // cleanup_colab
			run.setup = ""
			f.runs[key] = run
		}
	case f.chance() && f.running() == nil:
		f.saved = maps.Clone(f.runs)
	case f.chance() && f.saved != nil && f.running() == nil:
		f.newKernel() // restart_kernel, then restore_kernel_state
		f.runs = maps.Clone(f.saved)
	}
}

func (f *fakeVM) running() *fakeBatch {
	for _, b := range f.order {
		if !b.Status.Finished() {
			return b
		}
	}
	return nil
}

func (f *fakeVM) end(s contract.Status) {
	for b := f.running(); b != nil; b = f.running() {
		if !b.begun {
			s = contract.StatusCancelled
		}
		b.Status, b.Reason = s, "at random"
		if s == contract.StatusInterrupted || s == contract.StatusTimedOut {
			b.send(marker{Event: eventFailed, Done: f.runs[b.order.Key].done})
		}
	}
}

// tell sends a marker, after the unsent one.
func (b *fakeBatch) send(m marker) {
	b.flush()
	m.Run = b.order.Key
	body, _ := json.Marshal(m)
	b.Events = append(b.Events, contract.Event{
		Offset: int64(len(b.Events)), Type: contract.EventDisplayData, Data: map[string]json.RawMessage{markerMIME: body},
	})
}

func (b *fakeBatch) flush() {
	if m := b.unsent; m.Count > 0 {
		b.unsent = marker{}
		b.send(m)
	}
}

// work lets the running batch continue, as loop.py would, and delays some markers.
func (f *fakeVM) work(iterations int) {
	b := f.running()
	if b == nil {
		return
	}
	key, o := b.order.Key, b.order
	if !b.begun {
		if f.chance() { // a cell of the user's removed it
			f.hasPackage = false
		}
		f.hasPackage = f.hasPackage || strings.Contains(b.code, `"package_loader.py":`)
		if !f.hasPackage {
			b.begun, b.Status, b.KernelID = true, contract.StatusSucceeded, fmt.Sprint("kernel-", f.kernel)
			b.Events = append(b.Events, missingEvent(f.t, b.code))
			return
		}
		b.begun, b.Status, b.KernelID = true, contract.StatusRunning, fmt.Sprint("kernel-", f.kernel)
		run, ok := f.runs[key]
		if !ok || run.setup == "" {
			run.done = max(run.done, o.Lo)
		}
		b.send(marker{Event: eventStart, Done: run.done})
		if run.setup != o.SetupSHA256 {
			run.setup = o.SetupSHA256
			b.send(marker{Event: eventSetup, Done: run.done})
		}
		f.runs[key] = run
	}
	for range iterations {
		run := f.runs[key]
		if run.done >= o.Hi || f.r.Float64() < .02 { // its time is over
			b.flush()
			b.Status = contract.StatusSucceeded
			return
		}
		if f.r.Float64() < .02 {
			b.Status, b.Error = contract.StatusFailed, &contract.ExecutionError{EName: "E", EValue: "at random"}
			b.send(marker{Event: eventFailed, Done: run.done})
			return
		}
		if f.inKernel[run.done] {
			f.repeated[b.KernelID]++
		}
		f.inKernel[run.done], f.done[run.done] = true, true
		run.done++
		f.runs[key] = run
		value := fmt.Sprint(run.done - 1)
		m := marker{Event: eventDone, Done: run.done, Count: b.unsent.Count + 1, Seconds: b.unsent.Seconds + 1, Slowest: 1}
		m.Values = append(b.unsent.Values, result{Iteration: run.done - 1, Result: &value})
		if b.unsent = m; f.r.IntN(2) == 0 {
			b.flush()
		}
	}
}

// request passes a call on, or loses it, or its answer, or kills the relay that made it.
func (f *fakeVM) request(do func() error) error {
	f.fault()
	if f.chance() {
		return errCut
	}
	err := do()
	if f.chance() {
		f.killed = true
		f.onKill()
	}
	if f.killed || f.chance() {
		return errCut
	}
	return err
}

func (f *fakeVM) SubmitTo(_ context.Context, instanceID string, s contract.Submit) (e contract.Execution, err error) {
	err = f.request(func() error {
		if instanceID != f.InstanceID() {
			return &contract.Error{Code: contract.CodeNewInstance}
		}
		b := f.batches[s.RequestID]
		if b == nil {
			b = &fakeBatch{code: s.Code, order: orderOf(f.t, s.Code)}
			b.ExecutionID, b.RequestID, b.Status = fmt.Sprintf("e%d-%d", f.instance, len(f.order)), s.RequestID, contract.StatusQueued
			f.batches[s.RequestID] = b
			f.order = append(f.order, b)
		}
		if b.code != s.Code {
			return &contract.Error{Code: contract.CodeConflict}
		}
		f.work(f.r.IntN(15))
		e = f.answer(b, 0)
		return nil
	})
	return e, err
}

func (f *fakeVM) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (e contract.Execution, err error) {
	err = f.request(func() error {
		f.work(f.r.IntN(6))
		for _, b := range f.order {
			if b.ExecutionID == id && f.r.Float64() > .01 { // else its log was dropped
				e = f.answer(b, offset)
				return nil
			}
		}
		return &contract.Error{Code: contract.CodeNotFound}
	})
	return e, err
}

// answer returns a page of a batch's events. Some of them are no longer in the log.
func (f *fakeVM) answer(b *fakeBatch, offset int64) contract.Execution {
	e := b.Execution
	page := b.Events[min(offset, int64(len(b.Events))):]
	page = page[:min(len(page), 1+f.r.IntN(8))]
	e.Events = nil
	for _, ev := range page {
		if f.chance() {
			ev = contract.Event{Offset: ev.Offset, Type: contract.EventGap, Events: 1}
		}
		e.Events = append(e.Events, ev)
	}
	e.NextOffset = offset + int64(len(page))
	e.End = e.Status.Finished() && e.NextOffset >= int64(len(b.Events))
	return e
}

func (f *fakeVM) List(context.Context, int) (list contract.ExecutionList, err error) {
	err = f.request(func() error {
		f.work(f.r.IntN(3))
		for _, b := range f.order {
			list.Executions = append(list.Executions, b.Execution)
		}
		return nil
	})
	return list, err
}

func (f *fakeVM) Interrupt(context.Context, string) (contract.Execution, error) {
	return contract.Execution{}, f.request(func() error { f.end(contract.StatusInterrupted); return nil })
}

// missingEvent returns what call.py displays in a kernel without the package.
func missingEvent(t *testing.T, code string) contract.Event {
	t.Helper()
	report := fmt.Sprintf(`{"package":%q}`, kernelpy.Package())
	if !strings.Contains(code, kernelpy.Package()) {
		t.Fatal("the code does not name the package")
	}
	return contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
		contract.OwnMIME + "missing+json": json.RawMessage(report),
	}}
}

// orderOf returns the order in a cell, which loop.py would read.
func orderOf(t *testing.T, code string) (o order) {
	t.Helper()
	var text string
	decoder := json.NewDecoder(strings.NewReader(code[strings.Index(code, `"[{\"key\"`):]))
	if err := decoder.Decode(&text); err != nil {
		t.Fatal(err)
	}
	var arguments []order
	if err := json.Unmarshal([]byte(text), &arguments); err != nil {
		t.Fatal(err)
	}
	return arguments[0]
}
