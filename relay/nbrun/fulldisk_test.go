package nbrun

import (
	"os"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// After the first submit the record can't be written any more: nothing more is submitted, and
// what ran is not lost.
func TestNothingIsSubmittedThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")), src(says("c2")))
	vm, aside := withoutChains(m), b.dir+"-aside"
	vm.answer = func(e contract.Execution, err error) (contract.Execution, error) {
		if len(vm.submits) > 1 {
			return e, err
		}
		if err := os.Rename(b.dir, aside); err != nil {
			t.Error(err)
		}
		return e, os.WriteFile(b.dir, nil, 0o600) // a file stands for the full disk, also for root
	}
	got := b.advance(b.spec(), vm, 5*time.Second)
	if got.err == nil || len(vm.submits) != 1 {
		t.Fatalf("%v, %d submits, %s", got.err, len(vm.submits), got.cells())
	}
	if err := os.Remove(b.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, b.dir); err != nil {
		t.Fatal(err)
	}
	b.finish(b.spec(), vm, StatusSucceeded)
	m.ranIs("c0", "c1", "c2")
}
