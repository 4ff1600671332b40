package nbrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// cellCall is the result of one call.
type cellCall struct {
	contract.Execution
	notes string
}

// runCell does what one call of run_code_cell does in this package.
func (b *book) runCell(vm VM, handle string, callTime time.Duration) (cellCall, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), callTime+20*time.Second)
	defer cancel()
	x, notes, err := RunCell(ctx, vm, b.dir, Spec{Path: b.path, Cells: handle}, Options{Until: time.Now().Add(callTime)})
	return cellCall{x, strings.Join(notes, "\n")}, err
}

func TestOneCellRunsAndItsOutputsAreInTheFile(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+"\nx = 1"), "print(x)", "1 / 0", "raises-exception| 1 / 0")
	for _, test := range []struct {
		handle string
		status contract.Status
		state  State
	}{{"c1", "failed", Failed}, {"c0", "succeeded", Clean}, {"c1", "succeeded", Clean}, {"c2", "failed", Failed}, {"c3", "failed", Clean}} {
		got, err := b.runCell(m, test.handle, long)
		if err != nil || got.Status != test.status || !got.End || got.ExecutionID == "" {
			t.Fatalf("%s: %v %s, want %s", test.handle, err, got.Status, test.status)
		}
		if state := b.state(test.handle); state != test.state {
			t.Errorf("%s is %s, want %s", test.handle, state, test.state)
		}
	}
	m.ranIs("c0")
	if b.outputs("c1") != "1\n" {
		t.Errorf("it shows %q", b.outputs("c1"))
	}
}

// state is what get_cells says of a cell.
func (b *book) state(handle string) State {
	b.t.Helper()
	r, err := Load(b.dir, b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	file, err := notebook.OpenFile(b.path, b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := file.Read()
	if err != nil {
		b.t.Fatal(err)
	}
	i, err := d.Find(handle)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.States(d)[i]
}

func TestACellThatRunsIsAttachedToUnlessItWasEdited(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow+"\nprint('done')"), "2")
	got, err := b.runCell(m, "c0", 300*time.Millisecond)
	if err != nil || got.Status != contract.StatusRunning || got.ExecutionID == "" || b.state("c0") != Running {
		t.Fatalf("%v %+v", err, got)
	}
	again, err := b.runCell(m, "c0", 100*time.Millisecond)
	if err != nil || again.ExecutionID != got.ExecutionID {
		t.Fatalf("%v %+v", err, again)
	}
	b.rewrite("3", "2")
	if _, err = b.runCell(m, "c0", 100*time.Millisecond); !errors.Is(err, ErrConflict) {
		t.Fatalf("with another source: %v", err)
	}
	b.rewrite(src(says("c0")+slow+"\nprint('done')"), "2")
	m.touch("go")
	if got, err = b.runCell(m, "c0", long); err != nil || got.Status != "succeeded" || b.outputs("c0") != "done\n" {
		t.Fatalf("%v %s %q", err, got.Status, b.outputs("c0"))
	}
	m.ranIs("c0")
}

func TestLostAnswersOfOneCell(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+"\nprint('out')"))
	vm := &faults{VM: m, answer: func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }}
	if _, err := b.runCell(vm, "c0", long); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	vm.answer = nil
	got, err := b.runCell(vm, "c0", long)
	if err != nil || got.Status != "succeeded" || b.outputs("c0") != "out\n" {
		t.Fatalf("%v %s %q", err, got.Status, b.outputs("c0"))
	}
	m.ranIs("c0")
}

func TestOneCellRefuses(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "1", "  ")
	var none *notebook.NoCellError
	if _, err := b.runCell(m, "c7", long); !errors.As(err, &none) {
		t.Errorf("an unknown cell: %v", err)
	}
	if _, err := b.runCell(m, "c1", long); !errors.Is(err, ErrSpec) {
		t.Errorf("a blank cell: %v", err)
	}
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := b.runCell(m, "c0", long); !errors.Is(err, ErrBusy) {
		t.Errorf("during a call of a run: %v", err)
	}
}

// A call about another cell records the end of the first one. The call that asks what became of
// the first must not run it again.
func TestACellWhoseEndAnotherCallReadDoesNotRunAgain(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow+"\nprint('done')"), src(says("c1")))
	for range 100 {
		got, err := b.runCell(m, "c0", 200*time.Millisecond)
		if err != nil || got.Status != contract.StatusRunning {
			t.Fatal(err, got.Status)
		}
		if len(m.ran()) > 0 {
			break
		}
	}
	m.touch("go")
	for _, test := range []struct{ handle, ran string }{{"c1", "c0 c1"}, {"c1", "c0 c1 c1"}, {"c0", "c0 c1 c1"}, {"c0", "c0 c1 c1 c0"}} {
		got, err := b.runCell(m, test.handle, long)
		if err != nil || got.Status != "succeeded" {
			t.Fatal(err, got.Status)
		}
		m.ranIs(strings.Fields(test.ran)...)
		reported := test.handle == "c0" && test.ran == "c0 c1 c1"
		if noted := strings.Contains(got.notes, "earlier call"); noted != reported {
			t.Errorf("%s: notes %q", test.handle, got.notes)
		}
	}
	if b.outputs("c0") != "done\n" {
		t.Errorf("it shows %q", b.outputs("c0"))
	}
}

// A cell that waits for its turn has not begun: it runs as it is in the file now.
func TestACellThatIsEditedWhileItWaitsDoesNotRunAsItWas(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow), src(says("c1")))
	for i := 0; len(m.ran()) == 0 && i < 100; i++ {
		if got, err := b.runCell(m, "c0", 200*time.Millisecond); err != nil || got.Status != contract.StatusRunning {
			t.Fatal(err, got.Status)
		}
	}
	got, err := b.runCell(m, "c1", 200*time.Millisecond)
	if err != nil || got.Status != contract.StatusQueued || b.state("c1") != Running {
		t.Fatalf("%v %+v", err, got)
	}
	b.rewrite(src(says("c0")+slow), src(says("edited")))
	if got, err = b.runCell(m, "c1", 200*time.Millisecond); err != nil || got.Status != contract.StatusQueued {
		t.Fatalf("%v %+v", err, got)
	}
	m.touch("go")
	for _, handle := range []string{"c1", "c0"} {
		if got, err = b.runCell(m, handle, long); err != nil || got.Status != "succeeded" {
			t.Fatalf("%s: %v %s", handle, err, got.Status)
		}
	}
	m.ranIs("c0", "edited")
}

func TestACellOfAReplacedVMIsSaidToBeLost(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	old := start(t, oldStack(t), t.TempDir())
	b := write(t, src(says("c0")+slow))
	for i := 0; len(old.ran()) == 0 && i < 100; i++ {
		if _, err := b.runCell(old, "c0", 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	old.Kill()
	again := start(t, oldStack(t), t.TempDir())
	again.touch("go")
	got, err := b.runCell(again, "c0", long)
	if err != nil || got.Status != "succeeded" || !strings.Contains(got.notes, "on a VM that was replaced: its end is not known") {
		t.Errorf("%v %s %q", err, got.Status, got.notes)
	}
	again.ranIs("c0")
}

// The record keeps the newest cells whose ends nobody asked for.
func TestOneCellMoreThanTheRecordKeepsDropsTheOldest(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	sources := make([]src, maxCells+1)
	for i := range sources {
		sources[i] = "1"
	}
	b := write(t, sources...)
	vm := &faults{VM: &enemy{answer: func(*contract.Execution, contract.Submit) {}}}
	vm.answer = func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }
	for i := range sources {
		if _, err := b.runCell(vm, fmt.Sprint("c", i), long); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if r, err := Load(b.dir, b.path); err != nil || len(r.Cells) != min(i+1, maxCells) || (r.ofCell("c0") == nil) != (i == maxCells) {
			t.Fatalf("after %d cells: %v, %d", i+1, err, len(r.Cells))
		}
	}
}

// The kernel is restarted while a cell waits: it does not run in the new one unasked.
func TestACellThatWaitsIsNotRunInANewKernelByTheSameCall(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")))
	vm := &faults{VM: m}
	vm.before = func() error {
		m.restart() // after the relay has asked for the kernel
		return nil
	}
	got, err := b.runCell(vm, "c0", long)
	if err != nil || got.Status != contract.StatusCancelled {
		t.Errorf("%v %+v", err, got)
	}
	m.ranIs()
	vm.before = nil
	if got, err = b.runCell(vm, "c0", long); err != nil || got.Status != "succeeded" {
		t.Errorf("%v %s", err, got.Status)
	}
	m.ranIs("c0")
}
