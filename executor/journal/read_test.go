package journal

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
)

// The last output and the end of a run come within milliseconds; apart, they cost two requests.
func TestTheLastOutputAndTheEndAreReadTogether(t *testing.T) {
	for apart, together := range map[time.Duration]bool{endGrace - time.Millisecond: true, endGrace + time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			j := openIn(t, t.TempDir(), Limits{})
			r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
			var run sync.WaitGroup
			run.Go(func() {
				<-time.After(time.Second) // of synctest's clock
				if err := r.Append(stdout("last")); err != nil {
					t.Error(err)
				}
				<-time.After(apart)
				r.Finish(contract.StatusSucceeded, "", 0)
			})
			x, err := j.Read(t.Context(), r.Snapshot().ExecutionID, ReadRequest{Wait: time.Minute})
			if err != nil || len(x.Events) != 1 || x.End != together {
				t.Errorf("the end %v later: %d events, end %v, %v", apart, len(x.Events), x.End, err)
			}
			run.Wait()
		})
	}
}

// A reader in parts is told of the end with the last of them, and not before.
func TestTheEndComesWithTheLastPart(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	for _, text := range []string{"a", "b", "c"} {
		if err := r.Append(stdout(text)); err != nil {
			t.Fatal(err)
		}
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	if got := fetch(t, j, r.ID); got != "abc" {
		t.Errorf("read %q to the end", got)
	}
}
