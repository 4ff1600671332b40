package execution

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"colabrelay/shared/contract"
)

// ReadRequest says which part of an execution is wanted, and how long to wait
// for it.
type ReadRequest struct {
	Offset   int64
	Wait     time.Duration
	MaxBytes int64 // of events; 0 means contract.DefaultReadBytes
	UntilEnd bool  // wait for the end or an input request, not for the first event
	// EventsAfter, when set, ends UntilEnd after this time: from then on an event will do.
	EventsAfter time.Duration
	NoEvents    bool // leave the events out
}

// entry is one execution in memory. What must outlive the program is in its
// folder: state.ndjson, one whole snapshot a line, the last one counts; the
// event log; the blobs.
type entry struct {
	id        string
	requestID string
	digest    string // of the code
	unstored  bool   // leaves no trace in the kernel's history
	caller    string // who submitted it, and in which round of all callers it runs
	round     int
	dir       string
	log       *eventLog
	blobs     *blobStore
	reserve   *reserve

	mu      sync.Mutex
	code    string // until it ran
	now     contract.Execution
	states  states
	changed chan struct{} // closed at each change
}

// stateLine is one line of state.ndjson.
type stateLine struct {
	contract.Execution
	CodeSHA256 string `json:"code_sha256"`
	Unstored   bool   `json:"unstored,omitempty"`
}

const stateFile = "state.ndjson"

// createEntry makes an execution of s in a fresh folder, which it owns from then on.
// Where the disk has no room for it, its first line goes to the reserve.
func createEntry(f *folder, s contract.Submit, logBytes int64, r *reserve) (*entry, error) {
	digest := sha256.Sum256([]byte(s.Code))
	timeout := s.TimeoutSeconds
	if timeout == 0 {
		timeout = contract.DefaultTimeout.Seconds()
	}
	line := stateLine{
		Execution: contract.Execution{
			ExecutionID:    filepath.Base(f.dir),
			RequestID:      s.RequestID,
			Status:         contract.StatusQueued,
			CreatedAt:      time.Now().UTC(),
			TimeoutSeconds: timeout,
			CodePreview:    preview(s.Code),
		},
		CodeSHA256: hex.EncodeToString(digest[:]),
		Unstored:   s.Unstored,
	}
	e := newEntry(f.dir, line, freshLog(f, logBytes, r), &blobStore{dir: f.dir, limit: logBytes})
	e.code, e.states.file, e.reserve = s.Code, f.state, r
	if err := e.save(); err != nil {
		r.never(e)
		f.remove()
		return nil, err
	}
	if e.states.unsaved {
		e.now.Reason = diskFullNote
	}
	return e, nil
}

func newEntry(dir string, line stateLine, log *eventLog, blobs *blobStore) *entry {
	return &entry{
		id:        line.ExecutionID,
		requestID: line.RequestID,
		digest:    line.CodeSHA256,
		unstored:  line.Unstored,
		dir:       dir,
		log:       log,
		blobs:     blobs,
		now:       line.Execution,
		states:    states{path: filepath.Join(dir, stateFile)},
		changed:   make(chan struct{}),
	}
}

// preview is the code's first line that says something.
func preview(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	line = strings.TrimSpace(line)
	if utf8.RuneCountInString(line) <= contract.CodePreviewRunes {
		return line
	}
	return string([]rune(line)[:contract.CodePreviewRunes-1]) + "…"
}

// save appends the present state to its file, or to the reserve; then it is written
// to the file later, as it is where there was an error. The caller holds the lock, or
// is alone.
func (e *entry) save() error {
	line, err := e.line()
	if err != nil {
		return err
	}
	err = e.states.append(line)
	if e.states.unsaved = err != nil; err == nil {
		return nil
	}
	e.reserve.later(e, err)
	if !isFull(err) {
		return err
	}
	return e.reserve.put(line)
}

// line is the present state as it is written down.
func (e *entry) line() ([]byte, error) {
	line := stateLine{Execution: e.now, CodeSHA256: e.digest, Unstored: e.unstored}
	line.NextOffset = e.log.end()
	data, err := json.Marshal(line)
	return append(data, '\n'), err
}

// flush writes down what could not be written before.
func (e *entry) flush() error {
	if err := e.log.flush(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.states.unsaved {
		return nil
	}
	line, err := e.line()
	if err == nil {
		err = e.states.append(line)
	}
	if err != nil {
		return err
	}
	e.states.unsaved = false
	if e.states.ended {
		e.states.close()
	}
	return nil
}

// gone reports that the state file is not there any more, and has it written again.
func (e *entry) gone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := os.Stat(e.states.path); err == nil {
		return false
	}
	e.states.unsaved = true
	return true
}

// keptInMemory reports that the disk does not hold all of the execution.
func (e *entry) keptInMemory() bool {
	_ = e.flush() // it may have room by now
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states.unsaved || e.log.holding()
}

// same reports whether s asks for what e is: the same code, stored or not.
func (e *entry) same(s contract.Submit) bool {
	digest := sha256.Sum256([]byte(s.Code))
	return e.digest == hex.EncodeToString(digest[:]) && e.unstored == s.Unstored
}

// update changes the state, writes it down and wakes those who wait. A state that
// can't be written is true in memory, reported in the log, and written later. The
// error means that it is nowhere on disk: a later executor would not know of it.
func (e *entry) update(change func(x *contract.Execution)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.now)
	var err error
	if !e.states.ended {
		err = e.save()
	}
	if e.now.Status.Finished() {
		e.states.ended, e.code = true, ""
		if !e.states.unsaved {
			e.states.close()
		}
	}
	e.broadcast()
	return err
}

func (e *entry) finish(status contract.Status, reason string, memoryAfter uint64) {
	_ = e.update(func(x *contract.Execution) { // written later if it can't be now
		now := time.Now().UTC()
		x.Status, x.FinishedAt, x.QueuePosition = status, &now, 0
		x.MemoryAfterBytes, x.Reason = memoryAfter, reason
	})
}

// setPosition is told, not written down: it means nothing to a later executor.
func (e *entry) setPosition(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now.QueuePosition != n {
		e.now.QueuePosition = n
		e.broadcast()
	}
}

// append adds an event to the log and wakes those who wait.
func (e *entry) append(event contract.Event) error {
	held, err := e.log.append(event)
	if err != nil {
		return err
	}
	if held {
		e.reserve.later(e, ErrDiskFull)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broadcast()
	return nil
}

func (e *entry) broadcast() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *entry) changes() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *entry) snapshot() contract.Execution {
	e.mu.Lock()
	x := e.now
	e.mu.Unlock()
	x.Events = []contract.Event{}
	x.NextOffset = e.log.end()
	return x
}

// worth reports whether a reader has something to be answered with.
func (e *entry) worth(r ReadRequest) bool {
	x := e.snapshot()
	if x.Status.Finished() || x.Status == contract.StatusWaitingForInput {
		return true // nothing more comes by itself, at any offset
	}
	return !r.UntilEnd && x.NextOffset > r.Offset
}

// endGrace is how long an answer with new events waits for the run's end: the last
// output and the end come within moments, and apart they would cost two requests.
const endGrace = 5 * time.Millisecond

// awaitEnd returns when the run has finished, or after endGrace.
func (e *entry) awaitEnd(ctx context.Context) {
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	for {
		changed := e.changes()
		if e.snapshot().Status.Finished() {
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

func (e *entry) read(r ReadRequest) (contract.Execution, error) {
	x := e.snapshot() // before the events: a run that finishes now is not the End yet
	if r.NoEvents {
		return x, nil
	}
	if r.Offset > x.NextOffset {
		return x, fmt.Errorf("%w: %d is past %d", ErrBadOffset, r.Offset, x.NextOffset)
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = contract.DefaultReadBytes
	}
	events, next, err := e.log.read(r.Offset, r.MaxBytes)
	if err != nil {
		return x, fmt.Errorf("reading the execution log: %w", err)
	}
	x.Events, x.NextOffset = events, next
	x.End = x.Status.Finished() && next >= e.log.end()
	return x, nil
}

// readState is the last whole line of an entry's state file.
func readState(dir string) (stateLine, error) {
	f, err := os.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return stateLine{}, err
	}
	defer f.Close()
	var last stateLine
	lines := bufio.NewReader(f)
	for {
		data, err := lines.ReadBytes('\n')
		if err != nil { // a torn last line was never answered with
			break
		}
		var line stateLine
		if json.Unmarshal(bytes.TrimSpace(data), &line) == nil {
			last = line
		}
	}
	if last.ExecutionID == "" || last.RequestID == "" {
		return stateLine{}, fmt.Errorf("no whole line in %q", f.Name())
	}
	return last, nil
}
