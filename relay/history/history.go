// Package history keeps the runs that go through this laptop's relays: their code, output,
// times and runtime. So they can be listed, read and exported after the VM is gone.
//
// One index file has a line for each run, and each run has one file with its code and events.
// Any number of relays append to them, one at a time. The package names the files itself, never
// after anything that an executor sent. A kill at any byte leaves a readable history: an
// incomplete line counts as missing. All memory and disk use is bounded, whatever an executor
// sends. It must not delay or fail a run: it writes from its own goroutine, and a full disk costs
// only history. It knows neither terminals nor MCP.
//
// Start reading at Store, with the format; writer.go takes what a client reports, appends it and
// deletes old runs, read.go reads it and fetches what is missing.
package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// DefaultBytes is the usual bound of a history.
const DefaultBytes = 200 << 20

// Config is what a Store needs.
type Config struct {
	Dir      string       // created with the first run, for this user only
	MaxBytes int64        // of all files together; at least 1 MiB
	Log      *slog.Logger // nil for none; never gets code or output
}

// Store is the history in a folder. Any number of programs may use it at the same time. Its
// methods are safe for concurrent use. A nil Store is a history that is switched off: it records
// nothing and has no runs.
type Store struct {
	dir    string
	log    *slog.Logger
	delay  time.Duration // writeDelay, except in tests
	queue  queue
	writer writer // used by write alone
}

// New returns the Store in cfg.Dir. It creates and starts nothing. A caller that records must
// Close it.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	log := cfg.Log.With("component", "history")
	return &Store{dir: cfg.Dir, log: log, delay: writeDelay, writer: writer{dir: cfg.Dir, maxBytes: max(cfg.MaxBytes, 1<<20), log: log}}
}

// Record returns a recorder of the runs of a runtime; nil if the history is off.
func (s *Store) Record(runtime string) client.Recorder {
	if s == nil {
		return nil
	}
	return &recorder{s, runtime}
}

// closeLimit bounds Close: a disk that answers no more must not keep a program alive.
const closeLimit = 3 * time.Second

var errLate = fmt.Errorf("the disk did not take it within %s", closeLimit)

// Close writes what was reported, for at most 3 s, and ignores later reports. It returns the
// first fault since New because of which something is missing from the history.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.queue.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if s.Flush(ctx) != nil {
		s.log.Warn("the end of the history could not be written in time")
		return errLate
	}
	if fault := s.writer.first.Load(); fault != nil {
		return *fault
	}
	return nil
}

// The files in the folder of the history. KEY is keyOf.
//
//	index.ndjson       a line with head and state of a run, at its start and at each new status
//	KEY.ndjson         a run: its head, its code, then events; a mark after each append
//	KEY.SHA256.blob    a payload that was fetched
const (
	indexName  = "index.ndjson"
	runSuffix  = ".ndjson"
	blobSuffix = ".blob"
)

// keyOf names the files of an execution. An execution's id is unique on its instance only.
func keyOf(instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return hex.EncodeToString(sum[:12])
}

func runPath(dir, key string) string { return filepath.Join(dir, key+runSuffix) }

func blobPath(dir, key, sum string) string { return filepath.Join(dir, key+"."+sum+blobSuffix) }

// Bounds of a line and its parts. A longer event is not kept; longer texts of a state lose
// their end, because the event of an error has them too.
const (
	maxLine      = 12 << 20 // contract.MaxBodyBytes of code that JSON escapes
	maxEventLine = 2 << 20
	maxIndexLine = 32 << 10
	maxStateText = 2000    // bytes
	maxOffset    = 1 << 53 // exact in JSON of any program
	maxTitle     = 200     // bytes of a name, and of an index line's texts
	maxPreview   = 4 * (contract.CodePreviewRunes + 1)
)

// line is one line of a run's file, with exactly one field; a line of the index has Head and State.
type line struct {
	Head  *Head               `json:"run,omitempty"`
	State *contract.Execution `json:"state,omitempty"`
	Code  *string             `json:"code,omitempty"`
	Event *contract.Event     `json:"event,omitempty"`
	Mark  *mark               `json:"mark,omitempty"`
}

// Head is what is known of a run from its start.
type Head struct {
	Runtime    string    `json:"runtime"`     // the name of the pairing
	InstanceID string    `json:"instance_id"` // of the VM
	ID         string    `json:"id"`
	Request    string    `json:"request"`
	Recorded   time.Time `json:"recorded_at"` // when it was submitted, by this laptop's clock
	// Internal marks a run of the relay's own code, such as a round of a chunked run. Its code
	// is the first line only: the rest is a Python package.
	Internal bool   `json:"internal,omitempty"`
	Name     string `json:"name,omitempty"`     // of the code, such as its file's
	Preview  string `json:"preview"`            // the code's first line that is not blank, or its beginning
	CodeCut  bool   `json:"code_cut,omitempty"` // the code was too long for the history, which has its beginning
}

// mark says what precedes it in a run's file, so that an append need not read all of it.
type mark struct {
	State contract.Execution `json:"state"` // the last one
	Have  ranges.Set         `json:"have"`  // the offsets of the events in the file
	Blobs int64              `json:"blobs"` // bytes of the payloads beside it
	Full  bool               `json:"full"`  // an event found no room: none is accepted any more
}

// headOf returns the head of a run and its code, of at most most bytes.
func headOf(r *report, most int) (h Head, code string) {
	code, internal := r.submit.Source, false
	if code == "" {
		code, internal = r.submit.Code, r.submit.Unstored
	}
	first, _, _ := strings.Cut(strings.TrimSpace(code[:min(len(code), 16<<10)]), "\n")
	if internal {
		code = shorten(first, maxTitle)
	}
	kept := shorten(code, most)
	return Head{
		Runtime: r.runtime, InstanceID: r.instance, ID: r.e.ExecutionID, Request: r.submit.RequestID, Recorded: time.Now().UTC(),
		Internal: internal, Name: shorten(r.submit.SourceName, maxTitle), Preview: shorten(first, maxPreview), CodeCut: len(kept) < len(code),
	}, kept
}

// stateOf returns what is kept of an answer beside the head, with texts of at most most bytes.
func stateOf(e contract.Execution, most int) contract.Execution {
	e.ExecutionID, e.RequestID, e.CodePreview = "", "", ""
	e.Events, e.SessionMinutesLeft, e.Behind, e.Job = nil, nil, nil, nil
	e.KernelID, e.Reason, e.SourceName = shorten(e.KernelID, maxTitle), shorten(e.Reason, most), shorten(e.SourceName, maxTitle)
	if e.Error != nil {
		e.Error = &contract.ExecutionError{EName: shorten(e.Error.EName, most), EValue: shorten(e.Error.EValue, most)}
	}
	return e
}

// shorten returns at most most bytes of s, cut at a character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// encode returns l with a line break, or nil if it cannot be encoded, as a time beyond the
// year 9999.
func encode(l line) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		return nil
	}
	return append(text, '\n')
}

// decode reads a complete line.
func decode(text []byte) (l line, ok bool) {
	ok = bytes.HasSuffix(text, []byte("\n")) && json.Unmarshal(text, &l) == nil
	return l, ok
}

// ended reports whether a state says that the run has no more events than those before its
// NextOffset.
func ended(state contract.Execution) bool {
	return state.End && state.Status != "" && state.Status.Finished()
}

// follows returns the state of a run after the last one and a later answer's. The first outcome
// stands: an answer after it may only say where the events end, and none is accepted after that.
func follows(last, later contract.Execution) (state contract.Execution, ok bool) {
	switch {
	case later.Status == "":
		return last, false
	case last.Status == "", !last.Status.Finished():
		return later, true
	case last.End || later.Status != last.Status || !later.End:
		return last, false
	}
	last.End, last.NextOffset = true, max(last.NextOffset, later.NextOffset)
	return last, true
}

// rangeOf returns the offsets that an event stands for; ok is false for impossible ones.
func rangeOf(ev *contract.Event) (r contract.Range, ok bool) {
	r = contract.Range{Offset: ev.Offset, Length: 1}
	if ev.Type == contract.EventGap {
		r.Length = max(ev.Events, 1)
	}
	return r, r.Offset >= 0 && r.Offset < maxOffset && r.Length < maxOffset
}
