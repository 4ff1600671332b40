package tools

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

// maxUnansweredSubmits bounds the submits that a relay remembers. Beyond it the oldest is forgotten: the
// same call then runs its code again, as its error said that list_executions would tell.
const maxUnansweredSubmits = 1000

// unanswered remembers the submits that were sent and got no answer that an executor signed. The
// same call asks that executor for the same run, so its code does not run twice.
type unanswered struct {
	mu   sync.Mutex
	list []unansweredSubmit // oldest first
}

type unansweredSubmit struct {
	runtime   string
	code      [sha256.Size]byte
	timeout   time.Duration
	requestID string
	instance  string // of the executor to which it was sent
}

// take returns such a submit, with its request_id and instance, and forgets it; without a request_id
// there is none. Two submits of the same code are two runs.
func (u *unanswered) take(s unansweredSubmit) unansweredSubmit {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, known := range u.list {
		s.requestID, s.instance = known.requestID, known.instance
		if known == s {
			u.list = slices.Delete(u.list, i, i+1)
			return known
		}
	}
	s.requestID, s.instance = "", ""
	return s
}

// put remembers a submit.
func (u *unanswered) put(s unansweredSubmit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, s)
	u.list = slices.Delete(u.list, 0, max(0, len(u.list)-maxUnansweredSubmits))
}
