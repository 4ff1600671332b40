package auth

import (
	"crypto/sha256"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

// maxNonces limits the window to the 6,000 requests a minute that the rate limit allows,
// for the 15 minutes that the generations cover at most. At about 40 bytes each that is
// less than 5 MB. Only holders of the key can fill the window.
const maxNonces = 6000 * 15

// nonceID is a hash of a nonce, so that nonces of any length take the same memory.
type nonceID [16]byte

// window stores the nonces of recent requests. They are removed by age only, one generation
// at a time. A generation is the requests that were created within one span of
// contract.ClockSkew. It is removed when even the youngest possible request in it would
// fail the clock check. If nonces were removed by number, a flood could evict a nonce and
// then replay it.
type window struct {
	mu          sync.Mutex
	generations map[int64]map[nonceID]struct{}
	count       int
}

func newWindow() *window {
	return &window{generations: map[int64]map[nonceID]struct{}{}}
}

// admit stores nonce. It fails with ErrReplayed if the window contains it already and with
// ErrTooManyNonces if the window is full. created must be within contract.ClockSkew of now.
func (w *window) admit(nonce string, created, now time.Time) error {
	sum := sha256.Sum256([]byte(nonce))
	id := nonceID(sum[:len(nonceID{})])

	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeOldLocked(now)
	for _, seen := range w.generations {
		if _, used := seen[id]; used {
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

// removeOldLocked removes the generations of which no request can pass the clock check.
func (w *window) removeOldLocked(now time.Time) {
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
