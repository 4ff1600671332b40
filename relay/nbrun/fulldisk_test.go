package nbrun

import (
	"os"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// Nothing is submitted before the plan and the ticket are on disk.
func TestNothingIsSubmittedThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
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
	vm := &enemy{answer: func(*contract.Execution, contract.Submit) { t.Error("it is submitted") }}
	if _, err := r.Advance(t.Context(), vm, Options{Until: time.Now().Add(long)}); err == nil {
		t.Error("the run goes on")
	}
}
