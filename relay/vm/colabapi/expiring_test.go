package colabapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/vm"
)

// issuer gives tokens that are to be renewed after an hour.
type issuer struct {
	asked int
	err   error
}

func (i *issuer) renew(context.Context) (string, time.Time, error) {
	i.asked++
	<-time.After(time.Second) // of synctest's clock
	return strconv.Itoa(i.asked), time.Now().Add(time.Hour), i.err
}

func TestManyCallersOfAnExpiredTokenCauseOneRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, i := newExpiring[string](), issuer{}
		for round, want := range []string{"1", "2"} {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if got, err := e.get(t.Context(), "", i.renew); got != want || err != nil {
						t.Errorf("round %d: %q, %v", round, got, err)
					}
				})
			}
			all.Wait()
			<-time.After(2 * time.Hour) // of synctest's clock
		}
	})
}

// A proxy refuses every token if the executor has ended.
func TestRefusedTokensAreNotRenewedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, i := newExpiring[string](), issuer{}
		refused := ""
		for range 100 {
			got, err := e.get(t.Context(), refused, i.renew)
			if err != nil {
				t.Fatal(err)
			}
			refused = got
		}
		if i.asked != 1+freeRenewals {
			t.Errorf("asked for %d tokens", i.asked)
		}
		<-time.After(2 * renewEvery) // of synctest's clock
		if got, err := e.get(t.Context(), refused, i.renew); got == refused || err != nil {
			t.Errorf("later: %q again, %v", got, err)
		}
	})
}

func TestATokenThatCannotBeRenewedIsUsedWhileItMayWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, i := newExpiring[string](), issuer{}
		first, _ := e.get(t.Context(), "", i.renew)
		<-time.After(2 * time.Hour) // of synctest's clock
		i.err = errors.New("no answer")
		if got, err := e.get(t.Context(), "", i.renew); got != first || err != nil {
			t.Errorf("without an answer: %q, %v", got, err)
		}
		if got, err := e.get(t.Context(), first, i.renew); err == nil {
			t.Errorf("when it is refused: %q", got)
		}
		i.err = vm.ErrGone
		if got, err := e.get(t.Context(), "", i.renew); !errors.Is(err, vm.ErrGone) {
			t.Errorf("when the VM is gone: %q, %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.turn <- struct{}{} // another caller renews
		if _, err := e.get(ctx, "", i.renew); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that does not wait: %v", err)
		}
	})
}
