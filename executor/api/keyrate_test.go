package api

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/tier"
)

// takeAll has all callers take as many tokens as they can until ctx ends, and counts those
// of each. The first caller sends greedy requests in parallel, the others one.
func takeAll(ctx context.Context, k *keyRate, callers, greedy int) []int {
	return takeAllLate(ctx, k, callers, greedy, 0)
}

// takeAllLate is takeAll with callers that, but for the first one, need a while before they send
// the next request.
func takeAllLate(ctx context.Context, k *keyRate, callers, greedy int, late time.Duration) []int {
	given := make([]int, callers)
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range callers {
		atOnce := 1
		if n == 0 {
			atOnce = greedy
		}
		for range atOnce {
			group.Go(func() {
				for ctx.Err() == nil {
					if !k.take(ctx, caller(n)) {
						<-time.After(time.Second)
						continue
					}
					mu.Lock()
					given[n]++
					mu.Unlock()
					if n > 0 && late > 0 {
						<-time.After(late)
					}
				}
			})
		}
	}
	group.Wait()
	return given
}

// emptyKeyRate is a rate whose burst is used up.
func emptyKeyRate() *keyRate {
	k := newKeyRate()
	k.tokens = 0
	return k
}

func TestAHundredCallersGetEqualSharesOfTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		given := takeAll(ctx, emptyKeyRate(), 100, 1)
		if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 || fewest < 59 {
			t.Errorf("of %d a minute one caller gets %d, another %d", 60*keyPerSecond, fewest, most)
		}
	})
}

func TestAFloodByOneCallerLeavesTheOthersTheirShare(t *testing.T) {
	tier.Long(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		k := emptyKeyRate()
		given := takeAll(ctx, k, 10, 1000)
		if fewest := slices.Min(given[1:]); 10*fewest < 9*given[0] {
			t.Errorf("a flood gets %d, another caller %d", given[0], fewest)
		}
		if k.waiting.inUse() != 0 || len(k.callers) != 0 {
			t.Errorf("%d slots and %d turns are still taken", k.waiting.inUse(), len(k.callers))
		}
	})
}

// The next token is another caller's before a relay that waits for each answer asks again. It must
// not lose its turn by that.
func TestACallerThatAsksLateGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, callers := range []int{2, 3, 10} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			given := takeAllLate(ctx, emptyKeyRate(), callers, 50, 3*time.Second/keyPerSecond/2)
			cancel()
			if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 {
				t.Errorf("of %d callers one gets %d, another %d", callers, fewest, most)
			}
		}
	})
}

// Whoever has the secret can invent callers. They must not keep those that wait from their turns.
func TestInventedCallersDoNotTakeTheTurnsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		k := emptyKeyRate()
		given := 0
		var group sync.WaitGroup
		group.Go(func() {
			for ctx.Err() == nil {
				if k.take(ctx, caller(0)) {
					given++
				}
			}
		})
		for n := range 20 {
			group.Go(func() {
				for id := n + 1; ctx.Err() == nil; id += 20 { // another caller each time
					k.take(ctx, caller(id))
				}
			})
		}
		group.Wait()
		if most := 60 * keyPerSecond; given < most/21-2 {
			t.Errorf("it gets %d of %d", given, most)
		}
	})
}

func TestOnlyTheLastTurnsOfTheRateAreRemembered(t *testing.T) {
	k, other := emptyKeyRate(), &waiters{caller: caller(1)}
	k.rememberLocked(&waiters{caller: caller(0)})
	for range maxServed - 1 {
		k.rememberLocked(other)
	}
	for _, want := range []int{0, 1} { // at the bound, and one past it
		k.callers = []*waiters{other}
		if at := k.placeLocked(caller(0)); at != want || len(k.served) != maxServed {
			t.Errorf("its place is %d, want %d; %d turns are remembered", at, want, len(k.served))
		}
		k.rememberLocked(other)
	}
}

func TestTheBurstIsServedImmediatelyAndThenTheRateApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := newKeyRate(), time.Now()
		for range maxKeyBurst {
			if !k.take(t.Context(), caller(0)) {
				t.Fatal("refused within the burst")
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the burst took %v", d)
		}
		if !k.take(t.Context(), caller(0)) {
			t.Error("a request over the burst is refused instead of waiting")
		}
		if d := time.Since(began); d != time.Second/keyPerSecond {
			t.Errorf("a request over the burst waited %v", d)
		}
	})
}

func TestAWaitForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := emptyKeyRate(), time.Now()
		k.now = func() time.Time { return began } // no token is ever added
		k.timer = time.AfterFunc(time.Hour, func() {})
		defer k.timer.Stop()
		var group sync.WaitGroup
		for range maxKeyWaiting {
			group.Go(func() {
				if k.take(t.Context(), caller(0)) {
					t.Error("a request got a token that does not exist")
				}
			})
		}
		synctest.Wait()
		if k.take(t.Context(), caller(0)) || time.Since(began) != 0 {
			t.Errorf("a request without a slot waits %v", time.Since(began))
		}
		group.Wait()
		if d := time.Since(began); d != maxKeyWait || len(k.callers) != 0 {
			t.Errorf("the wait ended after %v, %d turns are left", d, len(k.callers))
		}
	})
}
