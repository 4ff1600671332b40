package journal

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

const (
	newerFile = "past.ndjson"   // is appended to
	olderFile = "past.1.ndjson" // the previous one
	// maxTombstoneFile bounds one of the two files. Limits.Tombstones take less, unless
	// all their fields are as long as they may be.
	maxTombstoneFile = 96 << 20
	// maxTombstoneText bounds each text of a tombstone.
	maxTombstoneText = 200
	// maxTombstone bounds a line: a damaged file must not be read as one long line.
	maxTombstone = 8 << 10
)

// tombstone is what is known of an execution whose folder is deleted. Its keys are
// short because there may be hundreds of thousands.
type tombstone struct {
	ID        string           `json:"id"`
	RequestID string           `json:"r"`
	Job       *contract.JobRef `json:"j,omitempty"`
	Code      string           `json:"h"` // SHA-256, base64
	Unstored  bool             `json:"u,omitempty"`
	Status    contract.Status  `json:"s"`
	KernelID  string           `json:"k,omitempty"`
	Count     int              `json:"n,omitempty"`
	Created   time.Time        `json:"c"`
	Started   *time.Time       `json:"b,omitempty"`
	Finished  *time.Time       `json:"f,omitempty"`
	Timeout   float64          `json:"t,omitempty"`
	Next      int64            `json:"o,omitempty"` // offset after the last event
	Bytes     int64            `json:"l,omitempty"` // of all events
	EName     string           `json:"e,omitempty"`
	EValue    string           `json:"v,omitempty"`
	Reason    string           `json:"w,omitempty"`
}

// tombstoneOf returns the tombstone of an execution.
func tombstoneOf(r *Record) tombstone {
	x := r.Snapshot()
	sum, _ := hex.DecodeString(r.digest)
	t := tombstone{
		ID: r.ID, RequestID: r.requestID, Code: base64.RawStdEncoding.EncodeToString(sum), Unstored: r.Unstored,
		Status: x.Status, KernelID: x.KernelID, Count: x.ExecutionCount,
		Created: x.CreatedAt, Started: x.StartedAt, Finished: x.FinishedAt, Timeout: x.TimeoutSeconds,
		Next: x.NextOffset, Bytes: r.events.everWritten(), Reason: Shorten(x.Reason, maxTombstoneText), Job: x.Job,
	}
	if x.Error != nil {
		t.EName, t.EValue = Shorten(x.Error.EName, maxTombstoneText), Shorten(x.Error.EValue, maxTombstoneText)
	}
	return t
}

// record returns the execution as far as it is known. All its events are one gap.
func (t tombstone) record(dir string) *Record {
	sum, _ := base64.RawStdEncoding.DecodeString(t.Code)
	dir = filepath.Join(dir, t.ID)
	reason := "its output is no longer kept, because newer executions replaced it"
	if t.Reason != "" {
		reason = t.Reason + "; " + reason
	}
	line := stateLine{
		CodeSHA256: hex.EncodeToString(sum), Unstored: t.Unstored,
		Execution: contract.Execution{
			ExecutionID: t.ID, RequestID: t.RequestID, Job: t.Job, Status: t.Status, KernelID: t.KernelID, ExecutionCount: t.Count,
			CreatedAt: t.Created, StartedAt: t.Started, FinishedAt: t.Finished, TimeoutSeconds: t.Timeout, Reason: reason,
		},
	}
	if t.EName != "" {
		line.Error = &contract.ExecutionError{EName: t.EName, EValue: t.EValue}
	}
	events := &eventLog{dir: dir, loaded: true, retired: true, next: t.Next, written: t.Bytes}
	return newRecord(dir, line, events, &blobStore{dir: dir})
}

// tombstones keep the request_ids of forgotten executions, so that a retried submit
// still runs nothing. They are in two files that are only appended to; when the newer
// one is full, the older one is deleted. An index in memory finds a tombstone's place.
type tombstones struct {
	dir   string
	limit int // tombstones in one file
	log   *slog.Logger

	mu    sync.Mutex
	newer *tombstoneFile
	older *tombstoneFile // nil while there is none
}

// openTombstones reads the files that an earlier executor left in dir.
func openTombstones(dir string, limit int, log *slog.Logger) (*tombstones, error) {
	t := &tombstones{dir: dir, limit: limit, log: log}
	var err error
	if t.older, err = openTombstoneFile(filepath.Join(dir, olderFile), os.O_RDWR, log); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		t.newer, err = openTombstoneFile(filepath.Join(dir, newerFile), os.O_RDWR|os.O_CREATE, log)
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("reading the tombstones of executions: %w", err)
	}
	return t, nil
}

func (t *tombstones) add(s tombstone) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.restoreLocked(); err != nil {
		return err
	}
	if t.newer.count >= t.limit || t.newer.size+int64(len(line)) >= maxTombstoneFile {
		if err := t.rotateLocked(); err != nil {
			return err
		}
	}
	return t.newer.add(s, append(line, '\n'))
}

// restore writes deleted files again.
func (t *tombstones) restore() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restoreLocked()
}

func (t *tombstones) restoreLocked() error {
	return errors.Join(t.newer.restore(), t.older.restore())
}

// rotateLocked replaces the older file by the newer one, and starts a new one.
func (t *tombstones) rotateLocked() error {
	older := filepath.Join(t.dir, olderFile)
	if err := os.Rename(t.newer.path, older); err != nil {
		return err
	}
	fresh, err := openTombstoneFile(t.newer.path, os.O_RDWR|os.O_CREATE, t.log)
	if err != nil {
		return errors.Join(err, os.Rename(older, t.newer.path)) // keep using the newer one
	}
	t.older.close()
	t.older, t.newer = t.newer, fresh
	t.older.path = older
	return nil
}

// byRequest finds the execution of a request_id.
func (t *tombstones) byRequest(id string) (tombstone, bool) {
	return t.find(id, func(s tombstone) string { return s.RequestID })
}

// byID finds the execution of an id.
func (t *tombstones) byID(id string) (tombstone, bool) {
	return t.find(id, func(s tombstone) string { return s.ID })
}

func (t *tombstones) find(key string, keyOf func(tombstone) string) (tombstone, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range []*tombstoneFile{t.newer, t.older} {
		if f == nil {
			continue
		}
		for position := range f.places.of(key) {
			if s, err := f.read(position); err == nil && keyOf(s) == key {
				return s, true
			}
		}
	}
	return tombstone{}, false
}

func (t *tombstones) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newer.close()
	t.older.close()
}

// tombstoneFile is one of the two files. A nil one does nothing.
type tombstoneFile struct {
	path   string
	file   *os.File
	size   int64
	count  int
	places index // by id and by request_id
}

// openTombstoneFile reads a file. A last line that a kill has torn is removed. A file with
// other damage is renamed, and a new one gets the lines that can be read; with flag
// os.O_CREATE also if none can. Without it, the error is fs.ErrNotExist then.
func openTombstoneFile(path string, flag int, log *slog.Logger) (*tombstoneFile, error) {
	f, err := readTombstoneFile(path, flag)
	if !errors.Is(err, errDamaged) && !errors.Is(err, bounded.ErrNotFile) {
		return f, err
	}
	kept, moved := keep.Aside(path)
	log.Warn("the outcomes of old executions are damaged; the file is kept under another name, and requests whose lines cannot be read would run again", "path", path, "kept", kept, "err", errors.Join(err, moved))
	if moved != nil {
		f.close()
		return nil, moved
	}
	if f == nil {
		return readTombstoneFile(path, flag)
	}
	defer f.close()
	return f.salvage()
}

// readTombstoneFile reads a file. With errDamaged, it returns what can be read.
func readTombstoneFile(path string, flag int) (*tombstoneFile, error) {
	file, err := bounded.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	f := &tombstoneFile{path: path, file: file, places: newIndex()}
	err = f.load(func(tombstone, []byte) error { return nil })
	if err != nil && !errors.Is(err, errDamaged) {
		file.Close()
		return nil, err
	}
	return f, err
}

// load reads the file, and passes each tombstone to use. It removes a torn last line, and
// returns errDamaged if there is anything else that is not a tombstone.
func (f *tombstoneFile) load(use func(s tombstone, line []byte) error) error {
	lines := bufio.NewReaderSize(io.NewSectionReader(f.file, 0, 2*maxTombstoneFile), maxTombstone)
	for damaged := 0; ; {
		line, size, err := bounded.ReadLine(lines, maxTombstone)
		var s tombstone
		switch {
		case errors.Is(err, io.EOF) && (damaged > 0 || size > maxTombstone || !isTorn(line, tombstoneBegins)):
			return fmt.Errorf("%w: it has %d lines that are no outcomes, or ends with something else", errDamaged, damaged)
		case errors.Is(err, io.EOF) && size > 0:
			return f.file.Truncate(f.size)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case json.Unmarshal(line, &s) != nil || s.ID == "" || s.RequestID == "":
			damaged++
		default:
			if err := use(s, line); err != nil {
				return err
			}
			f.addToIndex(s.ID, s.RequestID, f.size)
		}
		f.size += size
	}
}

// salvage makes the file again with the lines of a damaged one that can be read.
func (f *tombstoneFile) salvage() (*tombstoneFile, error) {
	file, err := bounded.OpenFile(f.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	fresh := &tombstoneFile{path: f.path, file: file, places: newIndex()}
	again := &tombstoneFile{file: f.file, places: newIndex()}
	if err := again.load(fresh.add); err != nil && !errors.Is(err, errDamaged) {
		fresh.close()
		return nil, err
	}
	return fresh, nil
}

func (f *tombstoneFile) addToIndex(id, requestID string, position int64) {
	f.count++
	f.places.put(id, position)
	f.places.put(requestID, position)
}

// add appends a tombstone's line. A line written in part is removed again.
func (f *tombstoneFile) add(s tombstone, line []byte) error {
	if n, err := f.file.WriteAt(line, f.size); err != nil {
		if n > 0 {
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return err
	}
	f.addToIndex(s.ID, s.RequestID, f.size)
	f.size += int64(len(line))
	return nil
}

func (f *tombstoneFile) read(position int64) (tombstone, error) {
	var s tombstone
	section := io.NewSectionReader(f.file, position, maxTombstone)
	return s, json.NewDecoder(section).Decode(&s)
}

// restore writes a deleted file again: its content can still be read while it is open.
func (f *tombstoneFile) restore() (err error) {
	if f == nil || !gone(f.file, f.path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	f.file, err = recreate(f.path, f.file, f.size, os.O_TRUNC)
	return err
}

func (f *tombstoneFile) close() {
	if f != nil {
		f.file.Close()
	}
}
