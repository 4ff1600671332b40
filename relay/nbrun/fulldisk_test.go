package nbrun

import (
	"os"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// After the submit the record can't be written any more: the call ends with the reason, and what
// ran is not lost.
func TestWhatRanIsNotLostWhenTheRecordCannotBeWritten(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")), src(says("c2")))
	vm, aside := &faults{VM: m}, b.dir+"-aside"
	vm.answer = func(j contract.Job, err error) (contract.Job, error) {
		if err := os.Rename(b.dir, aside); err != nil {
			t.Error(err)
		}
		return j, os.WriteFile(b.dir, nil, 0o600) // a file stands for the full disk, also for root
	}
	if got := b.advance(b.spec(), vm, 5*time.Second); got.err == nil {
		t.Fatalf("%s", got.cells())
	}
	if err := os.Remove(b.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, b.dir); err != nil {
		t.Fatal(err)
	}
	vm.answer = nil
	b.finish(b.spec(), vm, StatusSucceeded)
	m.ranIs("c0", "c1", "c2")
}

// Nothing is submitted before the plan and the ticket are on disk.
func TestNothingIsSubmittedThatCannotBeRecorded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")))
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Rename(b.dir, b.dir+"-aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dir, nil, 0o600); err != nil { // a file stands for the full disk
		t.Fatal(err)
	}
	vm := &faults{VM: m}
	if _, err := r.Advance(t.Context(), vm, Options{Until: time.Now().Add(long)}); err == nil || vm.submits > 0 {
		t.Errorf("%v, %d submits", err, vm.submits)
	}
	m.ranIs()
}
