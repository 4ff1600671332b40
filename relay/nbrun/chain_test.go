package nbrun

import (
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

func TestACellThatFindsTheQueueFullDoesNotHoldUpTheOneBefore(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow), src(says("c1")))
	vm := &faults{VM: m, before: func(s contract.Submit) error {
		for strings.Contains(s.Code, says("c1")) {
			if _, err := m.Submit(client.WithQueueFull(t.Context()), contract.Submit{Code: "pass"}); err != nil {
				var refused *contract.Error
				if !errors.As(err, &refused) || refused.Code != contract.CodeQueueFull {
					t.Error(err)
				}
				break
			}
		}
		return nil
	}}
	began := time.Now()
	got := b.advance(b.spec(), vm, 300*time.Millisecond)
	if took := time.Since(began); got.err != nil || took > 10*time.Second { // its context ends after 20 s
		t.Fatalf("%v after %v", got.err, took)
	}
	if n := got.Counts; n[CellNotRun] != 1 || n[CellQueued]+n[CellRunning] != 1 {
		t.Errorf("%v", n)
	}
	vm.before = nil
	m.touch("go")
	b.finish(b.spec(), vm, StatusSucceeded)
	m.ranIs("c0", "c1")
}
