package journal

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// PastJob is what is known of a job without its record. It is among the tombstones of executions, so
// that its id is known as long as theirs.
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

// jobKey names a job in states.log. No execution and no request has such an id.
func jobKey(id string) string { return jobPrefix + id }

const jobPrefix = "job:"

func isJob(id string) bool { return strings.HasPrefix(id, jobPrefix) }

// RecordJob adds to the record of a job; what is first replaces what there was. The error is
// ErrDiskFull if there is no room.
func (j *Journal) RecordJob(id string, first bool, record any) error {
	head := lineHead{ExecutionID: jobKey(id), RequestID: jobKey(id), More: !first}
	return j.states.append(head, jobLine{head, record})
}

// JobIDs returns the ids of the jobs that have a record.
func (j *Journal) JobIDs() (ids []string) {
	j.states.mu.Lock()
	defer j.states.mu.Unlock()
	for _, key := range j.states.idsLocked() {
		if isJob(key) {
			ids = append(ids, key[len(jobPrefix):])
		}
	}
	return ids
}

// JobRecord returns what was added to the record of a job, in order.
func (j *Journal) JobRecord(id string) (record []json.RawMessage, err error) {
	j.states.mu.Lock()
	defer j.states.mu.Unlock()
	for _, at := range j.states.live[jobKey(id)] {
		var part json.RawMessage
		err = errors.Join(err, j.states.read(at, &jobLine{Record: &part}))
		record = append(record, part)
	}
	return record, err
}

// RememberJob puts a tombstone in place of the record of a job.
func (j *Journal) RememberJob(p PastJob) error {
	line := stateLine{
		Execution: contract.Execution{
			ExecutionID: jobKey(p.ID), RequestID: jobKey(p.ID), Status: contract.Status(p.State),
			Error: &contract.ExecutionError{EName: string(p.Cause)}, Reason: Shorten(p.Reason, maxPastText),
			KernelID: p.KernelID, ExecutionCount: p.Entries, CreatedAt: p.Created, FinishedAt: p.Finished,
		},
		CodeSHA256: p.SHA256,
		Past:       true,
	}
	return j.states.append(line.head(), line)
}

// PastJob returns what RememberJob added.
func (j *Journal) PastJob(id string) (p PastJob, ok bool) {
	line, ok := j.states.pastID(jobKey(id))
	if !ok || line.Error == nil {
		return p, false
	}
	return PastJob{
		ID: id, SHA256: line.CodeSHA256, State: contract.JobState(line.Status), Cause: contract.JobCause(line.Error.EName),
		Reason: line.Reason, KernelID: line.KernelID, Entries: line.ExecutionCount, Created: line.CreatedAt, Finished: line.FinishedAt,
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
