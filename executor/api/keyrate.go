package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"colabrelay/shared/auth"
)

const (
	// maxKeyBurst and keyPerSecond bound what the holder of the key may ask: so many
	// requests at once, and so many a second after that, 6,000 in a minute.
	maxKeyBurst  = 6000
	keyPerSecond = 100
	// maxKeyWaiting requests wait for their turn past that, and as many again of callers
	// of which none waits. Each holds its body, at most contract.MaxBodyBytes.
	maxKeyWaiting = 64
	// maxKeyWait is how long a request waits for its turn. A relay gives an answer 20 s.
	maxKeyWait = 10 * time.Second
)

// keyRate is the key's limit: a token bucket whose callers take turns when it is empty.
// A hundred relays that share a key are slowed down alike, in place of one having its
// requests served and another having them refused.
type keyRate struct {
	burst   float64
	maxWait time.Duration
	now     func() time.Time
	waiting *slots

	mu       sync.Mutex
	tokens   float64
	refilled time.Time   // when tokens was counted
	callers  []*waiters  // callers that wait, the next one first
	timer    *time.Timer // runs while anyone waits
}

// waiters are the waiting requests of one caller, in order. Each is told by closing its channel.
type waiters struct {
	caller auth.Caller
	turns  []chan struct{}
}

func newKeyRate() *keyRate {
	return &keyRate{
		burst: maxKeyBurst, maxWait: maxKeyWait, now: time.Now, waiting: newSlots(maxKeyWaiting),
		tokens: maxKeyBurst, refilled: time.Now(),
	}
}

// take waits for the caller's turn. It reports false when there is no place to wait in,
// or the turn did not come in time, or ctx ended.
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

// takeNow takes a token when there is one for which nobody waits.
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

// refillLocked counts the tokens that have come since. The lock is held.
func (k *keyRate) refillLocked() {
	now := k.now()
	k.tokens = min(k.burst, k.tokens+now.Sub(k.refilled).Seconds()*keyPerSecond)
	k.refilled = now
}

// join puts a request of the caller behind its others, and a caller of which none waits
// behind all callers.
func (k *keyRate) join(caller auth.Caller) (turn chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	turn = make(chan struct{})
	at := slices.IndexFunc(k.callers, func(t *waiters) bool { return t.caller == caller })
	if at < 0 {
		at = len(k.callers)
		k.callers = append(k.callers, &waiters{caller: caller})
	}
	k.callers[at].turns = append(k.callers[at].turns, turn)
	if k.timer == nil {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
	return turn
}

// untilTokenLocked is how long it takes until there is a token. The lock is held.
func (k *keyRate) untilTokenLocked() time.Duration {
	return max(0, time.Duration((1-k.tokens)/keyPerSecond*float64(time.Second)))
}

// grantTurns gives the tokens there are to the callers in turn, one each.
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
		if len(next.turns) > 0 {
			k.callers = append(k.callers, next)
		}
	}
	k.timer = nil
	if len(k.callers) > 0 {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
}

// leave takes a request out. It reports whether its turn had come meanwhile.
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
