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
	// keyPatience is how long a request waits for its turn. A relay gives an answer 20 s.
	keyPatience = 10 * time.Second
)

// keyRate is the key's limit: a token bucket whose callers take turns when it is empty.
// A hundred relays that share a key are slowed down alike, in place of one having its
// requests served and another having them refused.
type keyRate struct {
	burst    float64
	patience time.Duration
	now      func() time.Time
	places   *places

	mu     sync.Mutex
	tokens float64
	filled time.Time   // when tokens was counted
	turns  []*turns    // callers that wait, the next one first
	timer  *time.Timer // runs while anyone waits
}

// turns are the waiting requests of one caller, in order. Each is told by closing its channel.
type turns struct {
	caller  auth.Caller
	waiting []chan struct{}
}

func newKeyRate() *keyRate {
	return &keyRate{
		burst: maxKeyBurst, patience: keyPatience, now: time.Now, places: newPlaces(maxKeyWaiting),
		tokens: maxKeyBurst, filled: time.Now(),
	}
}

// take waits for the caller's turn. It reports false when there is no place to wait in,
// or the turn did not come in time, or ctx ended.
func (k *keyRate) take(ctx context.Context, caller auth.Caller) bool {
	if k.takeNow() {
		return true
	}
	done, ok := k.places.take(caller)
	if !ok {
		return false
	}
	defer done()
	turn := k.join(caller)
	late := time.NewTimer(k.patience)
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
	k.fill()
	if len(k.turns) > 0 || k.tokens < 1 {
		return false
	}
	k.tokens--
	return true
}

// fill counts the tokens that have come since. The lock is held.
func (k *keyRate) fill() {
	now := k.now()
	k.tokens = min(k.burst, k.tokens+now.Sub(k.filled).Seconds()*keyPerSecond)
	k.filled = now
}

// join puts a request of the caller behind its others, and a caller of which none waits
// behind all callers.
func (k *keyRate) join(caller auth.Caller) (turn chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	turn = make(chan struct{})
	at := slices.IndexFunc(k.turns, func(t *turns) bool { return t.caller == caller })
	if at < 0 {
		at = len(k.turns)
		k.turns = append(k.turns, &turns{caller: caller})
	}
	k.turns[at].waiting = append(k.turns[at].waiting, turn)
	if k.timer == nil {
		k.timer = time.AfterFunc(k.untilToken(), k.grant)
	}
	return turn
}

// untilToken is how long it takes until there is a token. The lock is held.
func (k *keyRate) untilToken() time.Duration {
	return max(0, time.Duration((1-k.tokens)/keyPerSecond*float64(time.Second)))
}

// grant gives the tokens there are to the callers in turn, one each.
func (k *keyRate) grant() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fill()
	for k.tokens >= 1 && len(k.turns) > 0 {
		next := k.turns[0]
		close(next.waiting[0])
		k.tokens--
		next.waiting = next.waiting[1:]
		k.turns = k.turns[1:]
		if len(next.waiting) > 0 {
			k.turns = append(k.turns, next)
		}
	}
	k.timer = nil
	if len(k.turns) > 0 {
		k.timer = time.AfterFunc(k.untilToken(), k.grant)
	}
}

// leave takes a request out. It reports whether its turn had come meanwhile.
func (k *keyRate) leave(caller auth.Caller, turn chan struct{}) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, t := range k.turns {
		if t.caller != caller {
			continue
		}
		at := slices.Index(t.waiting, turn)
		if at < 0 {
			return true
		}
		if t.waiting = slices.Delete(t.waiting, at, at+1); len(t.waiting) == 0 {
			k.turns = slices.Delete(k.turns, i, i+1)
		}
		return false
	}
	return true
}
