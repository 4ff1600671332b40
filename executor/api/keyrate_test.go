package api

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// askAll has every caller ask as often as it can, perCaller at once, until ctx ends, and
// counts what each was given.
func askAll(ctx context.Context, k *keyRate, callers, greedy int) []int {
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
				}
			})
		}
	}
	group.Wait()
	return given
}

// emptyKeyRate has given its burst away.
func emptyKeyRate() *keyRate {
	k := newKeyRate()
	k.tokens = 0
	return k
}

func TestAHundredCallersGetEqualPartsOfTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		given := askAll(ctx, emptyKeyRate(), 100, 1)
		if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 || fewest < 59 {
			t.Errorf("of %d a minute one caller gets %d, another %d", 60*keyPerSecond, fewest, most)
		}
	})
}

func TestAFloodByOneCallerLeavesTheOthersTheirPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		k := emptyKeyRate()
		given := askAll(ctx, k, 10, 1000)
		if fewest := slices.Min(given[1:]); 10*fewest < 9*given[0] {
			t.Errorf("a flood gets %d, another caller %d", given[0], fewest)
		}
		if k.waiting.inUse() != 0 || len(k.callers) != 0 {
			t.Errorf("%d places and %d turns are left over", k.waiting.inUse(), len(k.callers))
		}
	})
}

func TestTheBurstIsGivenAtOnceAndThenTheRate(t *testing.T) {
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
			t.Error("one past the burst is refused in place of waiting")
		}
		if d := time.Since(began); d != time.Second/keyPerSecond {
			t.Errorf("one past the burst waited %v", d)
		}
	})
}

func TestAWaitForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := emptyKeyRate(), time.Now()
		k.now = func() time.Time { return began } // no token ever comes
		k.timer = time.AfterFunc(time.Hour, func() {})
		defer k.timer.Stop()
		var group sync.WaitGroup
		for range maxKeyWaiting {
			group.Go(func() {
				if k.take(t.Context(), caller(0)) {
					t.Error("a token came from nowhere")
				}
			})
		}
		synctest.Wait()
		if k.take(t.Context(), caller(0)) || time.Since(began) != 0 {
			t.Errorf("one past the places waits %v", time.Since(began))
		}
		group.Wait()
		if d := time.Since(began); d != maxKeyWait || len(k.callers) != 0 {
			t.Errorf("the wait ended after %v, %d turns are left", d, len(k.callers))
		}
	})
}
