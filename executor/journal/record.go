package journal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
)

// Record is one execution. Its states are lines of states.log; its folder, which comes when it
// begins, holds the event log and the blobs.
type Record struct {
	ID       string
	Unstored bool // leaves no trace in the kernel's history

	requestID string
	digest    string // of the code
	dir       string
	events    *eventLog
	blobs     *blobStore
	journal   *Journal
	fetched   atomic.Int64 // the offset up to which a caller has read all events

	mu      sync.Mutex
	state   contract.Execution
	unsaved bool          // the newest state is not on disk
	saved   int64         // NextOffset of the newest state on disk
	changed chan struct{} // closed at the next change; nil while nobody waits for it
	settled chan struct{} // as changed, but for the end or an input request
}

// newRecord makes an execution of s, which is on disk nowhere.
func (j *Journal) newRecord(s contract.Submit) (*Record, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	r := j.recordOf(stateLine{
		Execution: contract.Execution{
			ExecutionID:    id.String(),
			RequestID:      s.RequestID,
			Job:            s.Job,
			Status:         contract.StatusQueued,
			CreatedAt:      time.Now().UTC(),
			TimeoutSeconds: cmp.Or(s.TimeoutSeconds, contract.DefaultTimeout.Seconds()),
			CodePreview:    preview(s.Code),
			SourceName:     s.SourceName,
		},
		CodeSHA256: digest(s.Code),
		Unstored:   s.Unstored,
	})
	r.events.loaded = true
	return r, nil
}

// recordOf returns the execution that a line describes. Nothing of its folder is read.
func (j *Journal) recordOf(line stateLine) *Record {
	dir, limit := filepath.Join(j.cfg.Dir, line.ExecutionID), j.cfg.Limits.LogBytes
	r := &Record{
		ID:        line.ExecutionID,
		Unstored:  line.Unstored,
		requestID: line.RequestID,
		digest:    line.CodeSHA256,
		dir:       dir,
		events:    &eventLog{dir: dir, limit: limit, next: line.NextOffset, written: line.LogBytes, kept: line.KeptBytes, late: j.late},
		blobs:     &blobStore{dir: dir, limit: limit, used: line.BlobBytes},
		journal:   j,
		state:     line.Execution,
		saved:     line.NextOffset,
	}
	if line.Past { // all its events are one gap
		const replaced = "its output is no longer kept, because newer executions replaced it"
		r.state.Reason = strings.TrimPrefix(line.Reason+"; "+replaced, "; ")
		r.events.loaded, r.events.retired = true, true
	}
	return r
}

// isOf reports whether a submit that differs from s in no way that matters created r.
func (r *Record) isOf(s contract.Submit) bool {
	return r.digest == digest(s.Code) && r.Unstored == s.Unstored
}

func digest(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// preview is the first line of the code that is not blank.
func preview(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	line = strings.TrimSpace(line)
	runes, end := 0, 0 // end is where the last character that fits before "…" ends
	for at := range line {
		if runes++; runes == contract.CodePreviewRunes {
			end = at
		}
		if runes > contract.CodePreviewRunes {
			return line[:end] + "…"
		}
	}
	return strings.Clone(line) // else the execution would keep the whole code in memory
}

// Update changes the state, saves it and wakes its readers. A state that can't be
// saved is kept in memory and saved later. The error means that it is nowhere on
// disk, so that the next executor would not know of it.
func (r *Record) Update(change func(x *contract.Execution)) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.state.Status.Finished()
	change(&r.state)
	if !ended {
		err = r.saveLocked()
	}
	r.broadcastLocked()
	return err
}

// UpdateInMemory changes the state without saving it: the next Update does.
func (r *Record) UpdateInMemory(change func(x *contract.Execution)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// Finish ends the execution.
func (r *Record) Finish(status contract.Status, reason string, memoryAfter uint64) {
	_ = r.Update(func(x *contract.Execution) { // saved later if it can't be now
		now := time.Now().UTC()
		x.Status, x.FinishedAt, x.QueuePosition, x.Behind = status, &now, 0, nil
		x.MemoryAfterBytes, x.Reason = memoryAfter, reason
	})
	if finished := r.journal.cfg.Finished; finished != nil {
		finished(r.Snapshot(), r.digest)
	}
}

// SetQueuePosition is for readers only: to the next executor it would mean nothing.
func (r *Record) SetQueuePosition(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.QueuePosition != n {
		r.state.QueuePosition = n
		r.broadcastLocked()
	}
}

// SetBehind says which execution has the kernel while this one is queued. Like the queue
// position, it is for readers only.
func (r *Record) SetBehind(b *contract.Behind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Behind == b || r.state.Behind != nil && b != nil && *r.state.Behind == *b {
		return
	}
	r.state.Behind = b
	r.broadcastLocked()
}

// Append adds an event and wakes the readers. On a full disk the event is kept in
// memory; the error is ErrDiskFull if there is no room there either.
func (r *Record) Append(event contract.Event) error {
	size, inMemory, err := r.events.append(event)
	if isFull(err) {
		return ErrDiskFull
	}
	if err != nil {
		return err
	}
	r.journal.output.Add(size)
	if inMemory {
		r.journal.late.add(r, ErrDiskFull)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broadcastLocked()
	return nil
}

// PutBlob keeps a big payload, or finds the equal one that this execution has already. It
// calls write, which writes at most size bytes.
func (r *Record) PutBlob(size int64, write func(io.Writer) error) (contract.Blob, error) {
	blob, err := r.blobs.put(size, write)
	if err == nil {
		r.journal.output.Add(blob.Bytes)
	}
	return blob, err
}

// OpenLog makes the execution's folder before its first event needs it.
func (r *Record) OpenLog() { r.events.open() }

// CloseLog closes the event log's file, forgets which payloads are kept, and saves what came after
// the end. A later event opens the file again.
func (r *Record) CloseLog() {
	r.events.close()
	r.blobs.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Status.Finished() && r.events.end() != r.saved {
		_ = r.saveLocked()
	}
}

// broadcastLocked wakes the readers. Those that wait for the end sleep on until then: to
// wake one takes longer than to write an event.
func (r *Record) broadcastLocked() {
	wake(&r.changed)
	if settled(r.state.Status) || behindInput(r.state) {
		wake(&r.settled)
	}
}

func wake(readers *chan struct{}) {
	if *readers != nil {
		close(*readers)
		*readers = nil
	}
}

// settled reports whether no more events will follow on their own.
func settled(s contract.Status) bool { return s.Finished() || s == contract.StatusWaitingForInput }

// behindInput reports whether the execution is queued behind one that waits for input.
func behindInput(x contract.Execution) bool {
	return x.Status == contract.StatusQueued && x.Behind != nil && x.Behind.Status == contract.StatusWaitingForInput
}

// changes returns a channel that is closed at the next change or, with untilSettled, at
// the next one after which the status is settled.
func (r *Record) changes(untilSettled bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	readers := &r.changed
	if untilSettled {
		readers = &r.settled
	}
	if *readers == nil {
		*readers = make(chan struct{})
	}
	return *readers
}

// Status returns the execution's status.
func (r *Record) Status() contract.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Status
}

// Snapshot returns the execution without its events.
func (r *Record) Snapshot() contract.Execution {
	r.mu.Lock()
	x := r.state
	r.mu.Unlock()
	x.Events = []contract.Event{}
	x.NextOffset = r.events.end()
	return x
}

// InMemory reports whether the disk lacks a part of the execution, after one more
// attempt to write it.
func (r *Record) InMemory() bool {
	_ = r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsaved || r.events.inMemory()
}

// saveLocked appends the state to states.log. After an error it is saved again later.
func (r *Record) saveLocked() error {
	line := r.lineLocked()
	err := r.journal.states.append(line.head(), line)
	if r.unsaved = err != nil; r.unsaved {
		r.journal.late.add(r, err)
		return err
	}
	r.saved = line.NextOffset
	return nil
}

// lineLocked is the newest state, without what is for readers only.
func (r *Record) lineLocked() stateLine {
	line := stateLine{Execution: r.state, CodeSHA256: r.digest, Unstored: r.Unstored, BlobBytes: r.blobs.size()}
	line.QueuePosition, line.Behind = 0, nil
	line.NextOffset, line.LogBytes, line.KeptBytes = r.events.sizes()
	return line
}

// tombstone is what is kept of an execution whose folder is deleted.
func (r *Record) tombstone() stateLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.lineLocked()
	line.Past, line.KeptBytes, line.BlobBytes, line.CodePreview, line.SourceName = true, 0, 0, "", ""
	line.Reason = Shorten(line.Reason, maxPastText)
	if e := line.Error; e != nil {
		line.Error = &contract.ExecutionError{EName: Shorten(e.EName, maxPastText), EValue: Shorten(e.EValue, maxPastText)}
	}
	return line
}

// flush writes what could not be written before.
func (r *Record) flush() error {
	if err := r.events.flush(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsaved {
		return nil
	}
	return r.saveLocked()
}

func (r *Record) bytes() int64 {
	_, _, kept := r.events.sizes()
	return kept + r.blobs.size()
}

// awaited reports whether some output of a job's execution was not fetched. Nobody waits for a
// job's next execution: its relay may be away for hours, and fetches all of them later.
func (r *Record) awaited() bool {
	return r.state.Job != nil && r.fetched.Load() < r.events.end() // Job never changes
}

// dropOutput deletes the events and blobs. The state is kept: a reader still learns
// how the execution ended, and a retried submit still runs nothing.
func (r *Record) dropOutput() (freed int64) {
	unread := r.awaited()
	freed = r.bytes()
	r.events.drop()
	r.blobs.drop()
	r.fetched.Store(r.events.end())
	r.mu.Lock()
	defer r.mu.Unlock()
	if unread {
		r.state.Reason = strings.TrimPrefix(r.state.Reason+"; "+unreadReason, "; ")
	}
	_ = r.saveLocked()
	r.broadcastLocked()
	return freed
}

// unreadReason is added to the reason of a job's execution whose output was deleted before it
// was fetched.
const unreadReason = "its output was deleted before a relay had read it, because the VM keeps only so much output"

// Shorten cuts s to at most n bytes, between two characters, and marks the cut.
func Shorten(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	n = max(0, n-len(mark))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// ReadRequest selects a part of an execution and says how long to wait for it.
type ReadRequest struct {
	Offset   int64
	Wait     time.Duration
	MaxBytes int64 // of events; 0 means contract.DefaultReadBytes
	UntilEnd bool  // wait for the end or an input request, not for the first event
	// EventsAfter, when not 0, limits UntilEnd: after this time an event ends the wait too.
	EventsAfter time.Duration
	// BehindInput ends the wait as soon as the execution is queued behind one that waits for
	// input.
	BehindInput bool
	NoEvents    bool // return the state only
}

// Read waits until the execution has what r asks for, or until r.Wait is over, and
// returns its state and events then. The error may be ErrNotFound or ErrBadOffset.
func (j *Journal) Read(ctx context.Context, id string, r ReadRequest) (contract.Execution, error) {
	record, err := j.Find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	end := time.NewTimer(r.Wait)
	defer end.Stop()
	var eventsAfter <-chan time.Time
	if r.UntilEnd && r.EventsAfter > 0 {
		timer := time.NewTimer(r.EventsAfter)
		defer timer.Stop()
		eventsAfter = timer.C
	}
	for waited := false; ; waited = true {
		changed := record.changes(r.UntilEnd)
		if record.satisfies(r) {
			if waited {
				record.awaitEnd(ctx)
			}
			return record.read(r)
		}
		select {
		case <-changed:
		case <-eventsAfter:
			r.UntilEnd = false
		case <-end.C:
			return record.read(r)
		case <-ctx.Done():
			return contract.Execution{}, ctx.Err()
		}
	}
}

// satisfies reports whether r can be answered now.
func (r *Record) satisfies(request ReadRequest) bool {
	x := r.Snapshot()
	if settled(x.Status) || request.BehindInput && behindInput(x) {
		return true
	}
	return !request.UntilEnd && x.NextOffset > request.Offset
}

// endGrace is how long an answer with new events waits for the end of the execution.
// The last output and the end come within a moment; apart they cost two requests.
const endGrace = 5 * time.Millisecond

// awaitEnd returns when the execution has finished, or after endGrace.
func (r *Record) awaitEnd(ctx context.Context) {
	if r.Snapshot().Status.Finished() {
		return
	}
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	for {
		changed := r.changes(true)
		if r.Snapshot().Status.Finished() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *Record) read(request ReadRequest) (contract.Execution, error) {
	x := r.Snapshot() // before the events: one that finishes in between has no End yet
	if request.NoEvents {
		return x, nil
	}
	if request.Offset > x.NextOffset {
		if x.Status == contract.StatusLost { // a kill took events that the caller has read already
			x.End = true
			return x, nil
		}
		return x, fmt.Errorf("%w: %d is past %d", ErrBadOffset, request.Offset, x.NextOffset)
	}
	if request.MaxBytes == 0 {
		request.MaxBytes = contract.DefaultReadBytes
	}
	events, next, err := r.events.read(request.Offset, request.MaxBytes)
	if err != nil {
		return x, fmt.Errorf("reading the execution log: %w", err)
	}
	x.Events, x.NextOffset = events, next
	r.fetchedUpTo(request.Offset, next)
	x.End = x.Status.Finished() && next >= r.events.end()
	return x, nil
}

// fetchedUpTo notes that the events between two offsets were read.
func (r *Record) fetchedUpTo(from, next int64) {
	for before := r.fetched.Load(); from <= before && before < next; before = r.fetched.Load() {
		if r.fetched.CompareAndSwap(before, next) {
			return
		}
	}
}
