// Package history keeps the runs that go through this laptop's relays: their code, output,
// times and runtime. So they can be listed, read and exported after the VM is gone.
//
// Each run has one file in one folder, which any number of relays append to. The package
// names the files itself, never after anything that an executor sent. A kill at any byte
// leaves a readable history: an incomplete line counts as missing. All memory and disk use
// is bounded, whatever an executor sends. It must not delay or fail a run: it writes from its
// own goroutine, and a full disk costs only history. It knows neither terminals nor MCP.
//
// Start reading at Store, with the format; writer.go takes what a client reports and appends it,
// read.go reads it and fetches what is missing.
package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
	"colabrelay/shared/ranges"
)

// DefaultBytes is the usual bound of a history.
const DefaultBytes = 200 << 20

// Bounds that do not depend on the setting.
const (
	maxRuns     = 5000
	maxRunBytes = 16 << 20 // of one run's events; a smaller history allows an eighth of its bytes
	// writeDelay is how long a report waits before it is written: the answer leaves first,
	// and several reports of one run are written together.
	writeDelay = 50 * time.Millisecond
)

// Config is what a Store needs.
type Config struct {
	Dir      string       // created with the first run, for this user only
	MaxBytes int64        // of all files together; at least 1 MiB
	Log      *slog.Logger // nil for none; never gets code or output
}

// Store is the history in a folder. Any number of programs may use it at the same time. Its
// methods are safe for concurrent use.
type Store struct {
	cfg   Config
	delay time.Duration // writeDelay, except in tests

	unreadable once // a file of the history is damaged

	queue  queue
	writer writer // used by the goroutine of queue alone
}

// New returns the Store in cfg.Dir. It creates and starts nothing. A caller that records must
// Close it.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "history")
	cfg.MaxBytes = max(cfg.MaxBytes, 1<<20)
	s := &Store{cfg: cfg, delay: writeDelay}
	s.queue.hurry = make(chan struct{}, 1)
	s.writer = writer{dir: cfg.Dir, maxBytes: cfg.MaxBytes, log: cfg.Log, open: map[string]*openRun{}}
	return s
}

// Record returns a recorder of the runs of a runtime.
func (s *Store) Record(runtime string) client.Recorder { return &recorder{s, runtime} }

// Flush waits until everything that was reported is written, or ctx ends.
func (s *Store) Flush(ctx context.Context) error {
	done := s.queue.wait(1)
	defer s.queue.wait(-1)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeLimit bounds Close: a disk that answers no more must not keep a program alive.
const closeLimit = 3 * time.Second

var errLate = fmt.Errorf("the disk did not take it within %s", closeLimit)

// Close writes what was reported, for at most 3 s, and ignores later reports. It returns the
// first fault since New because of which something is missing from the history.
func (s *Store) Close() error {
	s.queue.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if s.Flush(ctx) != nil {
		s.cfg.Log.Warn("the end of the history could not be written in time")
		return errLate
	}
	if fault := s.writer.first.Load(); fault != nil {
		return *fault
	}
	return nil
}

// once logs the first of several equal faults.
type once struct {
	sync.Mutex
	said bool
}

func (o *once) do(f func()) {
	o.Lock()
	defer o.Unlock()
	if !o.said {
		f()
	}
	o.said = true
}

// A run's files, in the folder of the history. KEY is keyOf.
//
//	KEY.ndjson         a line with the head, then events and states; at most half of a run's bytes
//	KEY.tail.ndjson    later events and states; at most a quarter
//	KEY.tail-1.ndjson  what KEY.tail.ndjson contained when it was full
//	KEY.SHA256.blob    a payload that was fetched
const (
	headSuffix = ".ndjson"
	tailSuffix = ".tail.ndjson"
	oldSuffix  = ".tail-1.ndjson"
	blobSuffix = ".blob"
)

// suffixes lists a run's text files in the order of their contents.
var suffixes = []string{headSuffix, oldSuffix, tailSuffix}

// keyOf names the files of an execution. An execution's id is unique on its instance only.
func keyOf(instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return hex.EncodeToString(sum[:12])
}

var keyPattern = lazy.Regexp(`^[0-9a-f]{24}$`)

// Bounds of a line and its parts. A longer event is not kept; longer texts of a state lose
// their end, because the event of an error has them too.
const (
	maxLine      = 12 << 20 // a head with contract.MaxBodyBytes of code that JSON escapes
	maxEventLine = 2 << 20
	maxStateText = 2000    // bytes
	maxOffset    = 1 << 53 // exact in JSON of any program
	maxTitle     = 200     // bytes of what is kept of code that a relay submitted for itself
)

// line is one line of a file. Exactly one field is set.
type line struct {
	Head  *head               `json:"run,omitempty"`
	Event *contract.Event     `json:"event,omitempty"`
	State *contract.Execution `json:"state,omitempty"`
}

// head is what is known of a run from its start.
type head struct {
	Version     int       `json:"version"`
	Runtime     string    `json:"runtime"`
	InstanceID  string    `json:"instance_id"`
	ExecutionID string    `json:"execution_id"`
	RequestID   string    `json:"request_id"`
	Recorded    time.Time `json:"recorded_at"` // by this laptop's clock
	// Internal marks a run of the relay's own code, such as a round of a chunked run. Its Code
	// is the first line only: the rest is a Python package.
	Internal bool   `json:"internal,omitempty"`
	Name     string `json:"name,omitempty"` // of the code, such as its file's
	Code     string `json:"code"`
	CodeCut  bool   `json:"code_cut,omitempty"` // Code is only its beginning
}

const version = 1

func headOf(r *report) head {
	h := head{
		Version: version, Runtime: r.runtime, InstanceID: r.instance, ExecutionID: r.e.ExecutionID,
		RequestID: r.submit.RequestID, Recorded: time.Now().UTC(), Name: shorten(r.submit.SourceName, maxTitle), Code: r.submit.Source,
	}
	if h.Code == "" {
		h.Code, h.Internal = r.submit.Code, r.submit.Unstored
	}
	if h.Internal {
		first, _, _ := bytes.Cut([]byte(h.Code), []byte("\n"))
		h.Code = shorten(string(first), maxTitle)
	}
	return h
}

// stateOf returns what a state line contains of an answer.
func stateOf(e contract.Execution) contract.Execution {
	e.Events, e.SessionMinutesLeft, e.Behind = nil, nil, nil
	e.Reason, e.CodePreview, e.SourceName = shorten(e.Reason, maxStateText), shorten(e.CodePreview, maxStateText), shorten(e.SourceName, maxTitle)
	if e.Error != nil {
		e.Error = &contract.ExecutionError{EName: shorten(e.Error.EName, maxStateText), EValue: shorten(e.Error.EValue, maxStateText)}
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

// rangeOf returns the offsets that an event stands for; ok is false for impossible ones.
func rangeOf(ev *contract.Event) (r contract.Range, ok bool) {
	r = contract.Range{Offset: ev.Offset, Length: 1}
	if ev.Type == contract.EventGap {
		r.Length = max(ev.Events, 1)
	}
	return r, r.Offset >= 0 && r.Offset < maxOffset && r.Length < maxOffset
}

// extend returns have with r. It may change have: unlike Add, it copies nothing for an r that
// follows the last range, as nearly all do.
func extend(have ranges.Set, r contract.Range) ranges.Set {
	if n := len(have); n > 0 && have[n-1].End() == r.Offset && r.Length > 0 {
		have[n-1].Length += r.Length
		return have
	}
	return have.Add(r)
}

// edgeBytes is how much of the beginning and of the end of a run's files a summary reads. The
// last state is there unless a program was killed while it wrote.
const edgeBytes = 64 << 10

// summary returns a run without reading all of it.
func summary(dir, key string) (Run, error) {
	c := &contents{}
	first, size, err := edge(filepath.Join(dir, key+headSuffix), false)
	if err != nil {
		return Run{}, err
	}
	beginning, rest, _ := bytes.Cut(first, []byte("\n"))
	c.addLine(beginning)
	found := false
	for _, suffix := range []string{tailSuffix, oldSuffix} {
		last, _, err := edge(filepath.Join(dir, key+suffix), true)
		if err == nil && !found {
			found = c.addStates(last)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Run{}, err
		}
	}
	if !found && size > int64(len(first)) {
		if rest, _, err = edge(filepath.Join(dir, key+headSuffix), true); err != nil {
			return Run{}, err
		}
	}
	if c.head.Version != version || !found && !c.addStates(rest) {
		all, err := read(dir, key)
		if err != nil {
			return Run{}, err
		}
		c = all
	}
	return c.run(key), nil
}

// edge reads the first or last edgeBytes of a file.
func edge(path string, last bool) (text []byte, size int64, err error) {
	f, err := bounded.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	from := int64(0)
	if last {
		from = max(0, info.Size()-edgeBytes)
	}
	text, err = io.ReadAll(io.NewSectionReader(f, from, edgeBytes))
	return text, info.Size(), err
}

func (c *contents) addLine(text []byte) bool {
	var l line
	if decode(append(slices.Clip(text), '\n'), &l) != nil {
		return false
	}
	c.add(l)
	return l.State != nil
}

// addStates adds the complete state lines of text, and reports whether there is one.
func (c *contents) addStates(text []byte) (found bool) {
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for each := range bytes.Lines(text) {
		if bytes.HasPrefix(each, []byte(`{"state"`)) && c.addLine(bytes.TrimSuffix(each, []byte("\n"))) {
			found = true
		}
	}
	return found
}

// pruneShare: a prune that deletes runs leaves this share of a bound free. At least so much is
// written before the next look at the folder, because each look takes time in proportion to the
// number of runs. spareShare is the share of the free space after which another look is due:
// several programs may be writing.
const (
	pruneShare = 20
	spareShare = 4
)

// lockName is the file of the lock that a program holds while it prunes.
const lockName = "prune.lock"

// diskBlock is what a file takes at least.
const diskBlock = 4096

// onDisk is one run's files.
type onDisk struct {
	key     string
	files   []string
	bytes   int64
	newest  time.Time // when one of them was last written
	hasHead bool
}

// prune deletes the oldest runs if the history is over its bounds. It looks at the folder only
// now and then, and leaves the work to another program that does it already.
func (w *writer) prune() {
	if w.written < w.nextBytes && w.created < w.nextRuns {
		return
	}
	unlock, err := keep.TryLock(filepath.Join(w.dir, lockName))
	if err != nil {
		return
	}
	defer unlock()
	bytes, runs, err := pruneTo(w.dir, w.maxBytes, maxRuns, time.Now())
	w.written, w.created = 0, 0
	w.nextBytes = max(w.maxBytes/pruneShare, (w.maxBytes-bytes)/spareShare)
	w.nextRuns = max(maxRuns/pruneShare, (maxRuns-runs)/spareShare)
	if err != nil && !w.faulty {
		w.log.Warn("old runs of the history cannot be deleted", "err", err)
		w.faulty = true
	}
}

// pruneTo deletes runs until those that are left take at most most bytes less one
// pruneShare-th, and are at most runs less one pruneShare-th. Finished ones go first, the
// oldest first. It returns what is left.
func pruneTo(dir string, most int64, runs int, now time.Time) (total int64, left int, failed error) {
	all, total, err := filesByRun(dir)
	if err != nil {
		return 0, 0, err
	}
	all = slices.DeleteFunc(all, func(r *onDisk) bool {
		if r.hasHead || now.Sub(r.newest) < time.Hour {
			return false
		}
		failed = errors.Join(failed, r.remove(dir)) // what a killed program left
		total -= r.bytes
		return true
	})
	left = len(all)
	if total <= most && left <= runs {
		return total, left, failed
	}
	most, runs = most-most/pruneShare, runs-runs/pruneShare
	slices.SortFunc(all, func(a, b *onDisk) int { return a.newest.Compare(b.newest) })
	for _, any := range []bool{false, true} {
		all = slices.DeleteFunc(all, func(r *onDisk) bool {
			if total <= most && left <= runs || !any && !r.finished(dir, now) {
				return false
			}
			failed = errors.Join(failed, r.remove(dir))
			total -= r.bytes
			left--
			return true
		})
	}
	return total, left, failed
}

// filesByRun returns the runs in a folder, and how many bytes they take. It ignores files that
// are not of the history.
func filesByRun(dir string) (all []*onDisk, total int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	byKey := map[string]*onDisk{}
	for _, e := range entries {
		key, suffix, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err != nil || !keyPattern().MatchString(key) || !info.Mode().IsRegular() || !ofRun("."+suffix) {
			continue
		}
		r := byKey[key]
		if r == nil {
			r = &onDisk{key: key}
			byKey[key] = r
			all = append(all, r)
		}
		size := (info.Size() + diskBlock - 1) / diskBlock * diskBlock
		r.files, r.bytes, total = append(r.files, e.Name()), r.bytes+size, total+size
		r.hasHead = r.hasHead || "."+suffix == headSuffix
		if info.ModTime().After(r.newest) {
			r.newest = info.ModTime()
		}
	}
	return all, total, nil
}

func ofRun(suffix string) bool {
	sum, blob := strings.CutSuffix(strings.TrimPrefix(suffix, "."), blobSuffix)
	return slices.Contains(suffixes, suffix) || blob && contract.SHA256Pattern().MatchString(sum)
}

// finished reports whether a run has ended, as far as is known.
func (r *onDisk) finished(dir string, now time.Time) bool {
	if now.Sub(r.newest) > staleAfter {
		return true
	}
	run, err := summary(dir, r.key)
	return err != nil || run.Status.Finished()
}

// remove deletes a run's files, the head first: without it, the others count as remains.
func (r *onDisk) remove(dir string) error {
	slices.SortFunc(r.files, func(a, b string) int { return len(a) - len(b) })
	var failed error
	for _, name := range r.files {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
