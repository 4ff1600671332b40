package execution

import (
	"fmt"
	"slices"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// followedBy returns the execution that s follows, nil if there is none. It is older than
// that of s, so that executions never wait for each other.
func (q *Queue) followedBy(s contract.Submit) *journal.Record {
	if s.AfterRequestID == "" {
		return nil
	}
	return q.journal.ByRequest(s.AfterRequestID)
}

// cancelFollowersLocked cancels the waiting executions of which the one that they follow did
// not end as they need. One pass also reaches those that follow them, because every
// execution is in a later round than what it follows.
func (q *Queue) cancelFollowersLocked() {
	q.pending = slices.DeleteFunc(q.pending, func(s *submission) bool {
		reason := s.obstacle(q.life)
		if reason == "" {
			return false
		}
		s.cancel(reason)
		q.ended.Store(true)
		return true
	})
}

// obstacle says why s must not start on the kernel. It is empty if nothing prevents that,
// and while the execution that s follows waits or runs.
func (s *submission) obstacle(kernelID string) string {
	switch {
	case !s.chained():
		return ""
	case s.follows == nil:
		return fmt.Sprintf("it never ran: it was to follow the run with request_id %q, and the executor knows no such run", s.AfterRequestID)
	case !s.follows.Status().Finished():
		return ""
	}
	x := s.follows.Snapshot()
	began := fmt.Sprintf("it never ran: it was to follow run %s (request_id %q), ", x.ExecutionID, s.AfterRequestID)
	switch {
	case x.Status == contract.StatusCancelled:
		return began + "which was cancelled and never ran"
	case x.Status != contract.StatusSucceeded && !s.AfterAny:
		return began + fmt.Sprintf("which did not succeed: its status is %s", x.Status)
	case x.KernelID != kernelID:
		return began + "which ran in an earlier kernel, whose variables are gone"
	}
	return ""
}
