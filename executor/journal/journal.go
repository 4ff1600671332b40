// Package journal keeps on disk what every execution produced: its states, its
// events and its big payloads. They can be read from any offset, also by the
// executor that is started next. It keeps the records of jobs too.
//
// It knows nothing of kernels, queues or HTTP. All that it keeps is bounded: the
// output of old executions is deleted first, then the executions themselves, of
// which tombstones remain. A full disk or a deleted folder does not stop it.
//
// Start reading at Journal.Create and Record.Append, then go on to states.go and events.go for
// the files, and to late here for what happens on a full disk.
package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"colabrelay/shared/contract"
)

// Errors of the journal.
var (
	ErrNotFound  = errors.New("no such execution")
	ErrNoBlob    = errors.New("no such blob")
	ErrConflict  = errors.New("this request_id was used for a different submit")
	ErrDiskFull  = errors.New("the disk is full")
	ErrBadOffset = errors.New("offset is past the end of the log")
)

// Limits bound what the journal keeps. Nothing is deleted because of its age. The zero value of a field means its default.
type Limits struct {
	LogBytes   int64 // events of one execution, and as many bytes of blobs; 256 MiB
	StateSize  int64 // all executions together; 4 GiB, the oldest finished output is deleted first
	Kept       int   // executions with a folder: the user's and the relay's own each; 2,000
	Awaited    int   // as many more of each, of jobs, whose output no relay has fetched: a day of rounds of 10 s; 10,000
	Tombstones int   // request_ids remembered beyond those: at least this many, at most twice; 150,000
}

// DefaultLimits are the contract's.
var DefaultLimits = Limits{LogBytes: 256 << 20, StateSize: 4 << 30, Kept: 2000, Awaited: 10_000, Tombstones: 150_000}

func (l Limits) withDefaults() Limits {
	return Limits{
		LogBytes:   cmp.Or(l.LogBytes, DefaultLimits.LogBytes),
		StateSize:  cmp.Or(l.StateSize, DefaultLimits.StateSize),
		Kept:       cmp.Or(l.Kept, DefaultLimits.Kept),
		Awaited:    cmp.Or(l.Awaited, DefaultLimits.Awaited),
		Tombstones: cmp.Or(l.Tombstones, DefaultLimits.Tombstones),
	}
}

// Config says where the journal is kept.
type Config struct {
	Dir    string // holds states.log and one folder for each execution
	Limits Limits
	Log    *slog.Logger
	// Finished is called once for each execution that finishes, also one that a killed
	// executor left. It may wait a moment for a slow disk, as the journal does. Nil is not called.
	Finished func(x contract.Execution, codeSHA256 string)
}

// Journal holds the executions of one state directory.
type Journal struct {
	cfg    Config
	log    *slog.Logger
	states *states
	late   *late
	output atomic.Int64 // bytes of output at most: not all that was deleted is subtracted

	mu        sync.Mutex
	byID      map[string]*Record
	byRequest map[string]*Record
	order     []*Record    // oldest first
	kept      map[bool]int // how many of them are unstored, and how many are not
}

// Open reads what earlier executors left in cfg.Dir. Executions that were running
// when their executor was killed become lost, those that were waiting cancelled.
func Open(cfg Config) (*Journal, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	log := cfg.Log.With("component", "journal")
	j := &Journal{
		cfg:       cfg,
		log:       log,
		late:      &late{log: log, records: map[*Record]bool{}},
		byID:      map[string]*Record{},
		byRequest: map[string]*Record{},
		kept:      map[bool]int{},
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the execution log's folder: %w", err)
	}
	if err := j.recover(); err != nil {
		return nil, fmt.Errorf("reading the execution log: %w", err)
	}
	j.Trim()
	return j, nil
}

// Create adds a queued execution of s. When it returns, the execution is on disk, in the
// reserve if the disk is full. The error is ErrDiskFull when neither has room.
func (j *Journal) Create(s contract.Submit) (*Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.newRecord(s)
	if err == nil {
		err = r.saveLocked() // no other goroutine has it yet
	}
	if err != nil && r != nil {
		j.late.remove(r)
	}
	if isFull(err) {
		return nil, ErrDiskFull
	}
	if err != nil {
		return nil, fmt.Errorf("writing the execution log: %w", err)
	}
	j.addLocked(r)
	return r, nil
}

func (j *Journal) addLocked(r *Record) {
	j.output.Add(r.bytes())
	j.kept[r.Unstored]++
	j.byID[r.ID] = r
	j.byRequest[r.requestID] = r
	j.order = append(j.order, r)
}

// Submitted returns the id of the execution that an earlier submit with the same
// request_id created, or an empty id. The error is ErrConflict when that submit
// differs from s.
func (j *Journal) Submitted(s contract.Submit) (id string, err error) {
	r := j.ByRequest(s.RequestID)
	if r == nil {
		return "", nil
	}
	if !r.isOf(s) {
		return "", ErrConflict
	}
	return r.ID, nil
}

// ByRequest returns the execution that a submit with the request_id created, nil if there
// was none. Of one that only a tombstone remembers, the events are a single gap.
func (j *Journal) ByRequest(requestID string) *Record {
	j.mu.Lock()
	r, ok := j.byRequest[requestID]
	j.mu.Unlock()
	if ok {
		return r
	}
	if past, ok := j.states.pastRequest(requestID); ok {
		return j.recordOf(past)
	}
	return nil
}

// Find returns an execution. Of one that only a tombstone remembers, the events
// are a single gap. The error is ErrNotFound.
func (j *Journal) Find(id string) (*Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r, ok := j.byID[id]; ok {
		return r, nil
	}
	if past, ok := j.states.pastID(id); ok {
		return j.recordOf(past), nil
	}
	return nil, ErrNotFound
}

// maxListedError bounds the text of an error in a list, in bytes.
const maxListedError = 1 << 10

// List returns the newest executions, at most limit, without events and tracebacks.
func (j *Journal) List(limit int) []contract.Execution {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]contract.Execution, 0, min(limit, len(j.order)))
	for i := len(j.order) - 1; i >= 0 && len(list) < limit; i-- {
		list = append(list, brief(j.order[i].Snapshot()))
	}
	return list
}

// brief shortens errors: a list of a thousand failures would take tens of megabytes.
func brief(x contract.Execution) contract.Execution {
	if x.Error != nil {
		x.Error = &contract.ExecutionError{EName: x.Error.EName, EValue: Shorten(x.Error.EValue, maxListedError)}
	}
	x.Reason = Shorten(x.Reason, maxListedError)
	return x
}

// Blob opens a payload that an event of the execution refers to by a BlobRef.
// The error is ErrNotFound or ErrNoBlob.
func (j *Journal) Blob(id string, number int) (*os.File, error) {
	r, err := j.Find(id)
	if err != nil {
		return nil, err
	}
	return r.blobs.open(number)
}

// NeedsFlush reports whether something has not been written yet.
func (j *Journal) NeedsFlush() bool { return j.late.needsFlush() }

// Flush tries to write what could not be written before.
func (j *Journal) Flush() { j.late.flush() }

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

// RememberJob puts a tombstone in place of the record of a job. It is among those of executions, so
// that the id of a job is known as long as theirs.
func (j *Journal) RememberJob(id string, record any) error {
	head := lineHead{ExecutionID: jobKey(id), RequestID: jobKey(id), Past: true}
	return j.states.append(head, jobLine{head, record})
}

// PastJob reads what RememberJob added, if it did.
func (j *Journal) PastJob(id string, record any) bool {
	line := jobLine{Record: record}
	return j.states.find(maphash.String(seeds.id, jobKey(id)), &line) && line.ExecutionID == jobKey(id)
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

const (
	// maxUnwrittenTotal bounds the events of all executions that wait in memory, in
	// bytes. See maxUnwritten.
	maxUnwrittenTotal = 64 << 20
	// maxFailures ends one flush. After one failure others may still succeed, because
	// a state needs less room than a log; thousands of failures would only load the disk.
	maxFailures = 16
)

// InMemoryReason is the reason of an execution that a full disk keeps from being saved.
const InMemoryReason = "the VM's disk is full: this run is kept only in the executor's memory and is lost when the executor ends; delete files on the VM, which code run here can still do"

// isFull reports whether err means that the disk has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, ErrDiskFull)
}

// late knows which executions are in memory only, with a part of their events or with their last
// state, and writes them as soon as the disk can take them.
type late struct {
	log *slog.Logger
	one sync.Mutex // one flush at a time

	mu       sync.Mutex
	memory   int64 // bytes of events in memory
	records  map[*Record]bool
	flushing bool
}

// add has flush write the record again. cause is the error that was met, nil if none.
func (l *late) add(record *Record, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) == 0 && cause != nil {
		l.log.Error("an execution could not be saved; saving is retried until it succeeds", "execution_id", record.ID, "err", cause)
	}
	l.records[record] = true
}

// remove undoes add.
func (l *late) remove(record *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.records, record)
}

func (l *late) needsFlush() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records) > 0 || l.flushing
}

// flush writes what could not be written before.
func (l *late) flush() {
	l.one.Lock()
	defer l.one.Unlock()
	l.mu.Lock()
	waiting := slices.Collect(maps.Keys(l.records))
	l.flushing = true
	l.mu.Unlock()
	failed := 0
	for _, record := range waiting {
		l.remove(record) // first, because a concurrent failure adds it again
		if err := record.flush(); err != nil {
			l.add(record, nil)
			if failed++; failed == maxFailures {
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flushing = false; len(waiting) > 0 && len(l.records) == 0 {
		l.log.Info("all executions are saved again", "count", len(waiting))
	}
}

// allocate takes memory for n bytes of events, or gives it back; false if there is none left.
func (l *late) allocate(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.memory+n > maxUnwrittenTotal {
		return false
	}
	l.memory += n
	return true
}
