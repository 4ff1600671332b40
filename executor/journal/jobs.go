package journal

import (
	"encoding/base64"
	"encoding/hex"
	"time"

	"colabrelay/shared/contract"
)

// PastJob is what is known of a job whose own record is deleted. It is among the tombstones
// of executions, so that its id is known as long as theirs.
type PastJob struct {
	ID       string
	SHA256   string // of its content; empty if it is not known
	State    contract.JobState
	Cause    contract.JobCause
	Reason   string
	KernelID string
	Entries  int
	Created  time.Time
	Finished *time.Time
}

// jobKey names the tombstone of a job. No execution and no request has such an id.
func jobKey(id string) string { return "job:" + id }

// RememberJob adds a job to the tombstones.
func (j *Journal) RememberJob(p PastJob) error {
	sum, err := hex.DecodeString(p.SHA256)
	if err != nil {
		return err
	}
	return j.tombstones.add(tombstone{
		ID: jobKey(p.ID), RequestID: jobKey(p.ID), Code: base64.RawStdEncoding.EncodeToString(sum),
		Status: contract.Status(p.State), EName: string(p.Cause), Reason: Shorten(p.Reason, maxTombstoneText),
		KernelID: p.KernelID, Count: p.Entries, Created: p.Created, Finished: p.Finished,
	})
}

// PastJob returns what RememberJob added.
func (j *Journal) PastJob(id string) (p PastJob, ok bool) {
	t, ok := j.tombstones.byRequest(jobKey(id))
	if !ok {
		return p, false
	}
	sum, _ := base64.RawStdEncoding.DecodeString(t.Code)
	return PastJob{
		ID: id, SHA256: hex.EncodeToString(sum), State: contract.JobState(t.Status), Cause: contract.JobCause(t.EName),
		Reason: t.Reason, KernelID: t.KernelID, Entries: t.Count, Created: t.Created, Finished: t.Finished,
	}, true
}

// OfJobs returns the executions that belong to jobs, by the job's id, the oldest first, without
// events.
func (j *Journal) OfJobs() map[string][]contract.Execution {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := map[string][]contract.Execution{}
	for _, r := range j.order {
		if x := r.Snapshot(); x.Job != nil {
			found[x.Job.JobID] = append(found[x.Job.JobID], x)
		}
	}
	return found
}
