package api

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/auth"
)

// takeAll has all callers take as many tokens as they can in a minute, and counts those of each.
// The first caller sends greedy requests in parallel, the others one, and they need a while before
// they send the next one.
func takeAll(t *testing.T, callers, greedy int, late time.Duration) []int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := emptyKeyRate()
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
					if n > 0 {
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
		given := takeAll(t, 100, 1, 0)
		if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 || fewest < 59 {
			t.Errorf("of %d a minute one caller gets %d, another %d", 60*keyPerSecond, fewest, most)
		}
	})
}

// The next token is another caller's before a relay that waits for each answer asks again. It must
// not lose its turn by that.
func TestACallerThatAsksLateGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, callers := range []int{2, 3, 10} {
			given := takeAll(t, callers, 50, 3*time.Second/keyPerSecond/2)
			if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 {
				t.Errorf("of %d callers one gets %d, another %d", callers, fewest, most)
			}
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

func caller(n int) (c auth.Caller) {
	binary.BigEndian.PutUint64(c[:], uint64(n)+1)
	return c
}

// inUse is how many slots are taken.
func (p *slots) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
