package journal

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/contract"
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
