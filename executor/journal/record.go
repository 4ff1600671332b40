package journal

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// Record is one execution. Its folder holds what must outlive the executor: the
// state file, the event log and the blobs.
type Record struct {
	ID       string
	Unstored bool // leaves no trace in the kernel's history

	requestID string
	digest    string // of the code
	dir       string
	events    *eventLog
	blobs     *blobStore
	reserve   *reserve
	output    *atomic.Int64                                 // of the journal: counts the bytes of events and blobs
	finished  func(x contract.Execution, codeSHA256 string) // see Config
	fetched   atomic.Int64                                  // the offset up to which a caller has read all events

	mu      sync.Mutex
	state   contract.Execution
	file    stateFile
	changed chan struct{} // closed at the next change; nil while nobody waits for it
	settled chan struct{} // as changed, but for the end or an input request
}

// createRecord makes an execution of s in a prepared folder, which it then owns.
// On a full disk its first line goes to the reserve.
func createRecord(f *folder, s contract.Submit, logBytes int64, reserve *reserve) (*Record, error) {
	line := stateLine{
		Execution: contract.Execution{
			ExecutionID:    filepath.Base(f.dir),
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
	}
	r := newRecord(f.dir, line, newEventLog(f, logBytes, reserve), &blobStore{dir: f.dir, limit: logBytes})
	r.file.file, r.reserve = f.state, reserve
	if err := r.saveLocked(); err != nil { // no other goroutine has it yet
		reserve.remove(r)
		f.remove()
		return nil, err
	}
	if r.file.unsaved {
		r.state.Reason = InMemoryReason
	}
	return r, nil
}

func newRecord(dir string, line stateLine, events *eventLog, blobs *blobStore) *Record {
	return &Record{
		ID:        line.ExecutionID,
		Unstored:  line.Unstored,
		requestID: line.RequestID,
		digest:    line.CodeSHA256,
		dir:       dir,
		events:    events,
		blobs:     blobs,
		state:     line.Execution,
		file:      stateFile{path: filepath.Join(dir, stateFileName)},
	}
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
func (r *Record) Update(change func(x *contract.Execution)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
	var err error
	if !r.file.ended {
		err = r.saveLocked()
	}
	if r.state.Status.Finished() {
		r.file.ended = true
		if !r.file.unsaved {
			r.file.close()
		}
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
	if r.finished != nil {
		r.finished(r.Snapshot(), r.digest)
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
	r.output.Add(size)
	if inMemory {
		r.reserve.add(r, ErrDiskFull)
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
		r.output.Add(blob.Bytes)
	}
	return blob, err
}

// CloseLog closes the event log's file and forgets which payloads are kept. A later event
// opens the file again.
func (r *Record) CloseLog() {
	r.events.close()
	r.blobs.forget()
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
	return r.file.unsaved || r.events.inMemory()
}

// saveLocked appends the state to its file or, on a full disk, to the reserve. After
// any error it is to be saved again later.
func (r *Record) saveLocked() error {
	line, err := r.writeStateLocked()
	if err == nil {
		return nil
	}
	r.reserve.add(r, err)
	if !isFull(err) {
		return err
	}
	return r.reserve.put(line)
}

func (r *Record) writeStateLocked() (line []byte, err error) {
	state := stateLine{Execution: r.state, CodeSHA256: r.digest, Unstored: r.Unstored}
	state.NextOffset, state.Behind = r.events.end(), nil
	if line, err = json.Marshal(state); err == nil {
		line = append(line, '\n')
		err = r.file.append(line)
	}
	r.file.unsaved = err != nil
	return line, err
}

// flush writes what could not be written before.
func (r *Record) flush() error {
	if err := r.events.flush(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.file.unsaved {
		return nil
	}
	_, err := r.writeStateLocked()
	if err == nil && r.file.ended {
		r.file.close()
	}
	return err
}

// checkFile reports whether the state file is missing, and marks it as unsaved then.
func (r *Record) checkFile() (missing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := os.Stat(r.file.path); err == nil {
		return false
	}
	r.file.unsaved = true
	return true
}

func (r *Record) bytes() int64 { return r.events.size() + r.blobs.size() }

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
		r.file.unsaved = true
		r.reserve.add(r, nil)
	}
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

const stateFileName = "state.ndjson"

// stateLine is one line of a state file: a complete snapshot of an execution. The
// last line counts.
type stateLine struct {
	contract.Execution
	CodeSHA256 string `json:"code_sha256"`
	Unstored   bool   `json:"unstored,omitempty"`
}

// stateFile is the file of an execution's states. Its Record's lock guards it.
type stateFile struct {
	path    string
	file    *os.File // nil while it is not open
	ended   bool     // the execution has finished: no more lines follow
	unsaved bool     // the newest state is not in the file
}

// append writes a line. If the file or its folder was deleted, it is made again.
func (s *stateFile) append(line []byte) error {
	if s.file != nil && gone(s.file, s.path) {
		s.close()
	}
	if s.file == nil {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return err
		}
		f, err := openAppend(s.path)
		if err != nil {
			return err
		}
		s.file = f
	}
	n, err := s.file.Write(line)
	if err == nil || n == 0 {
		return err
	}
	end, seekErr := s.file.Seek(0, io.SeekEnd) // a partial line must not precede the next one
	return errors.Join(err, seekErr, s.file.Truncate(end-int64(n)))
}

func (s *stateFile) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// readState returns the last complete line of the state file in dir. With the error
// errDamaged it is the last one that can be read, or empty.
func readState(dir string) (last stateLine, err error) {
	f, err := bounded.Open(filepath.Join(dir, stateFileName))
	if err != nil {
		return last, err
	}
	defer f.Close()
	damaged := 0
	lines := bufio.NewReader(f)
	for {
		data, size, err := bounded.ReadLine(lines, maxLine)
		if err != nil && err != io.EOF {
			return last, err
		}
		if err == io.EOF { // what a torn last line says was never answered with
			if size > maxLine || !isTorn(data, stateBegins) {
				damaged++
			}
			break
		}
		if line, ok := parseState(data); ok && line.ExecutionID == filepath.Base(dir) {
			last = line
		} else {
			damaged++
		}
	}
	switch {
	case damaged > 0:
		return last, fmt.Errorf("%w: %q has %d lines that are not states of this execution", errDamaged, f.Name(), damaged)
	case last.ExecutionID == "":
		return last, fmt.Errorf("%w: %q has no complete line", errDamaged, f.Name())
	}
	return last, nil
}

// parseState reads one line.
func parseState(data []byte) (line stateLine, ok bool) {
	err := json.Unmarshal(data, &line)
	return line, err == nil && line.ExecutionID != "" && line.RequestID != ""
}
