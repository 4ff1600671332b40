package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"colabrelay/shared/auth"
)

const (
	// maxKeyBurst and keyPerSecond limit the requests signed with one key: so many in a
	// burst, and so many a second after that, which is 6,000 a minute.
	maxKeyBurst  = 6000
	keyPerSecond = 100
	// maxKeyWaiting is how many requests over the limit wait for their turn; see slots.
	// Each occupies memory for its body, at most contract.MaxBodyBytes.
	maxKeyWaiting = 64
	// maxKeyWait is how long a request waits for its turn. A relay waits 20 s for an answer.
	maxKeyWait = 10 * time.Second
	// maxServed is how many turns are remembered: twice as many as callers can wait.
	maxServed = 256
)

// keyRate is the rate limit of a key: a token bucket whose callers take turns when it is
// empty. All relays that share the key are slowed down equally, so that none is served
// while another is refused.
type keyRate struct {
	burst   float64
	maxWait time.Duration
	now     func() time.Time
	waiting *slots

	mu       sync.Mutex
	tokens   float64
	refilled time.Time   // when tokens was computed
	callers  []*waiters  // those that wait, the next one to be served first
	served   []turn      // the last turns, the newest last
	turns    uint64      // that were given in all
	timer    *time.Timer // runs while anyone waits
}

// waiters are the waiting requests of one caller, in order. Closing its channel wakes a request.
type waiters struct {
	caller auth.Caller
	last   uint64 // number of the caller's last turn; 0 if it had none lately
	turns  []chan struct{}
}

// turn is one that a caller had.
type turn struct {
	caller auth.Caller
	number uint64
}

func newKeyRate() *keyRate {
	return &keyRate{
		burst: maxKeyBurst, maxWait: maxKeyWait, now: time.Now, waiting: newSlots(maxKeyWaiting),
		tokens: maxKeyBurst, refilled: time.Now(),
	}
}

// take waits for the caller's turn. It returns false if there is no slot to wait in, if
// the turn does not come within maxWait, or if ctx ends.
func (k *keyRate) take(ctx context.Context, caller auth.Caller) bool {
	if k.takeNow() {
		return true
	}
	done, ok := k.waiting.take(caller)
	if !ok {
		return false
	}
	defer done()
	turn := k.join(caller)
	late := time.NewTimer(k.maxWait)
	defer late.Stop()
	select {
	case <-turn:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return k.leave(caller, turn)
}

// takeNow takes a token if there is one and no request waits for one.
func (k *keyRate) takeNow() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refillLocked()
	if len(k.callers) > 0 || k.tokens < 1 {
		return false
	}
	k.tokens--
	return true
}

// refillLocked adds the tokens for the time since the last call.
func (k *keyRate) refillLocked() {
	now := k.now()
	k.tokens = min(k.burst, k.tokens+now.Sub(k.refilled).Seconds()*keyPerSecond)
	k.refilled = now
}

// join queues a request behind the caller's other requests. A caller without waiting
// requests is queued before those that had a turn since its last one: a caller that waits for
// each answer before it asks again is always late. One that had no turn lately is queued behind
// all others, so invented callers take nobody's turn.
func (k *keyRate) join(caller auth.Caller) (turn chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	turn = make(chan struct{})
	at := slices.IndexFunc(k.callers, func(t *waiters) bool { return t.caller == caller })
	if at < 0 {
		at = k.placeLocked(caller)
	}
	k.callers[at].turns = append(k.callers[at].turns, turn)
	if k.timer == nil {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
	return turn
}

// placeLocked adds a caller to those that wait.
func (k *keyRate) placeLocked(caller auth.Caller) (at int) {
	w := &waiters{caller: caller}
	at = -1
	for _, t := range slices.Backward(k.served) {
		if t.caller == caller {
			w.last = t.number
			at = slices.IndexFunc(k.callers, func(other *waiters) bool { return other.last > w.last })
			break
		}
	}
	if at < 0 {
		at = len(k.callers)
	}
	k.callers = slices.Insert(k.callers, at, w)
	return at
}

// untilTokenLocked is the time until the next token.
func (k *keyRate) untilTokenLocked() time.Duration {
	return max(0, time.Duration((1-k.tokens)/keyPerSecond*float64(time.Second)))
}

// grantTurns gives the available tokens to the callers in turn, one each.
func (k *keyRate) grantTurns() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refillLocked()
	for k.tokens >= 1 && len(k.callers) > 0 {
		next := k.callers[0]
		close(next.turns[0])
		k.tokens--
		next.turns = next.turns[1:]
		k.callers = k.callers[1:]
		k.rememberLocked(next)
		if len(next.turns) > 0 {
			k.callers = append(k.callers, next)
		}
	}
	k.timer = nil
	if len(k.callers) > 0 {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
}

// rememberLocked records that a caller has its turn.
func (k *keyRate) rememberLocked(w *waiters) {
	k.turns++
	w.last = k.turns
	if len(k.served) == maxServed {
		k.served = slices.Delete(k.served, 0, 1)
	}
	k.served = append(k.served, turn{w.caller, w.last})
}

// leave removes a waiting request. It reports whether the request got its turn before that.
func (k *keyRate) leave(caller auth.Caller, turn chan struct{}) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, t := range k.callers {
		if t.caller != caller {
			continue
		}
		at := slices.Index(t.turns, turn)
		if at < 0 {
			return true
		}
		if t.turns = slices.Delete(t.turns, at, at+1); len(t.turns) == 0 {
			k.callers = slices.Delete(k.callers, i, i+1)
		}
		return false
	}
	return true
}
