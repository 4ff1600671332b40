package auth

import (
	"crypto/sha256"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

// maxNonces bounds the window: the 6,000 requests a minute the rate limit lets
// through, times the 15 minutes that generations can be alive together at most. At
// some 40 bytes each that is under 5 MB. Only who holds the key can fill it.
const maxNonces = 6000 * 15

// nonceID stands for a nonce, so that each costs the same however long it is.
type nonceID [16]byte

// window remembers nonces. They are forgotten by age only, a whole generation at a
// time: a generation is the requests created within one span of contract.ClockSkew,
// and it is dropped once the youngest it may hold is too old to pass the clock
// check. Forgetting by number would let a flood push a nonce out and replay it.
type window struct {
	mu          sync.Mutex
	generations map[int64]map[nonceID]struct{}
	count       int
}

func newWindow() *window {
	return &window{generations: map[int64]map[nonceID]struct{}{}}
}

// admit remembers nonce, or fails with ErrReplayed when it is known already and
// with ErrTooManyNonces when the window is full. created must be within
// contract.ClockSkew of now.
func (w *window) admit(nonce string, created, now time.Time) error {
	sum := sha256.Sum256([]byte(nonce))
	id := nonceID(sum[:len(nonceID{})])

	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(now)
	for _, seen := range w.generations {
		if _, known := seen[id]; known {
			return ErrReplayed
		}
	}
	if w.count >= maxNonces {
		return ErrTooManyNonces
	}
	number := generation(created)
	if w.generations[number] == nil {
		w.generations[number] = map[nonceID]struct{}{}
	}
	w.generations[number][id] = struct{}{}
	w.count++
	return nil
}

// forget drops the generations nothing of which can pass the clock check at now.
func (w *window) forget(now time.Time) {
	oldest := generation(now.Add(-contract.ClockSkew))
	for number, seen := range w.generations {
		if number < oldest {
			w.count -= len(seen)
			delete(w.generations, number)
		}
	}
}

func generation(t time.Time) int64 {
	return t.Unix() / int64(contract.ClockSkew/time.Second)
}
