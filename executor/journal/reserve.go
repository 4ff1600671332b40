package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

const (
	reserveFile = "reserve.ndjson"
	// reserveBytes is how much disk is reserved for state lines. A run needs three
	// of about 600 bytes, so that about 500 runs fit before one is refused.
	reserveBytes = 1 << 20
	// maxUnwrittenTotal bounds the events of all executions that wait in memory, in
	// bytes. See maxUnwritten.
	maxUnwrittenTotal = 64 << 20
	// maxFailures ends one flush. After one failure others may still succeed, because
	// a state line needs less room than a log; thousands of failures would only load
	// the disk.
	maxFailures = 16
)

// InMemoryReason is the reason of an execution that a full disk keeps from being saved.
const InMemoryReason = "the VM's disk is full: this run is kept only in the executor's memory and is lost when the executor ends; delete files on the VM, which code run here can still do"

// isFull reports whether err means that the disk has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, ErrDiskFull)
}

// reserve lets executions continue on a full disk, so that code can delete what fills
// it. It is a file whose blocks are allocated in advance: state lines overwrite them
// and need no room that another program could take first. It also knows which
// executions are not completely written to their own folders.
type reserve struct {
	path string
	log  *slog.Logger

	one sync.Mutex // one flush at a time: it empties the reserve at its end

	mu       sync.Mutex
	file     *os.File // nil while it can't be made
	used     int64
	memory   int64 // bytes of events in memory
	unsaved  map[*Record]bool
	flushing bool
}

// openReserve opens the reserve in dir and returns the state lines that an earlier
// executor left in it, the last one of each execution.
func openReserve(dir string, log *slog.Logger) (*reserve, map[string]stateLine) {
	r := &reserve{path: filepath.Join(dir, reserveFile), log: log, unsaved: map[*Record]bool{}}
	lines, err := r.readLines()
	if err != nil {
		r.replace(err)
	}
	r.allocateLocked() // no other goroutine has it yet
	return r, lines
}

// readLines reads what the reserve holds. With an error, something there is not from an
// executor.
func (r *reserve) readLines() (map[string]stateLine, error) {
	found := map[string]stateLine{}
	raw, err := bounded.ReadFile(r.path, reserveBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("%q: %w", r.path, err)
	}
	raw, unused, _ := bytes.Cut(raw, []byte{0})
	damaged := 0
	if len(bytes.Trim(unused, "\x00")) > 0 {
		damaged++
	}
	for data := range bytes.Lines(raw) {
		if !bytes.HasSuffix(data, []byte("\n")) {
			if !isTorn(data, stateBegins) {
				damaged++
			}
			break
		}
		if line, ok := parseState(data); ok {
			found[line.ExecutionID] = line
		} else {
			damaged++
		}
		r.used += int64(len(data))
	}
	if damaged > 0 {
		return found, fmt.Errorf("%w: %q has %d lines that are not states", errDamaged, r.path, damaged)
	}
	return found, nil
}

// replace renames a damaged reserve. What could be read of it is written to the folders of its
// executions; a new reserve would have no room where they have none.
func (r *reserve) replace(why error) {
	kept, err := keep.Aside(r.path)
	r.log.Warn("the reserve of the execution log is damaged and kept under another name", "err", errors.Join(why, err), "kept", kept)
	r.used = 0
}

// allocateLocked makes the file, again if it was deleted, and allocates its blocks.
// If there is no room for them, a later flush tries again.
func (r *reserve) allocateLocked() {
	if r.file != nil && gone(r.file, r.path) {
		r.file.Close()
		r.file, r.used = nil, 0
	}
	if r.file != nil {
		return
	}
	f, err := bounded.OpenFile(r.path, os.O_RDWR|os.O_CREATE)
	if err == nil {
		_, err = f.WriteAt(make([]byte, reserveBytes-r.used), r.used)
	}
	if err != nil {
		r.log.Warn("reserving disk space", "err", err)
		if f != nil {
			f.Close()
		}
		return
	}
	r.file = f
}

// missing reports whether the journal's folder was deleted: the reserve in it is
// always open.
func (r *reserve) missing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		return gone(r.file, r.path)
	}
	_, err := os.Stat(filepath.Dir(r.path))
	return err != nil
}

// restore makes a deleted reserve again.
func (r *reserve) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allocateLocked()
}

// put writes a state line that does not fit on the disk elsewhere.
func (r *reserve) put(line []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil || gone(r.file, r.path) || r.used+int64(len(line)) >= reserveBytes {
		return ErrDiskFull
	}
	if _, err := r.file.WriteAt(line, r.used); err != nil {
		return err
	}
	r.used += int64(len(line))
	return nil
}

// add has flush write the record again. cause is the error that was met, nil if none.
func (r *reserve) add(record *Record, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unsaved) == 0 && cause != nil {
		r.log.Error("an execution's state could not be saved; saving is retried until it succeeds", "execution_id", record.ID, "err", cause)
	}
	r.unsaved[record] = true
}

// remove undoes add.
func (r *reserve) remove(record *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unsaved, record)
}

func (r *reserve) needsFlush() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unsaved) > 0 || r.flushing
}

// flush writes what could not be written before. Once everything is written, the
// reserve is empty again.
func (r *reserve) flush() {
	r.one.Lock()
	defer r.one.Unlock()
	r.mu.Lock()
	waiting := slices.Collect(maps.Keys(r.unsaved))
	r.flushing = true
	r.mu.Unlock()
	r.flushAll(waiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flushing = false; len(r.unsaved) > 0 {
		return
	}
	if len(waiting) > 0 {
		r.log.Info("all executions are saved again", "count", len(waiting))
	}
	r.allocateLocked()
	if r.file != nil && r.used > 0 {
		if _, err := r.file.WriteAt(make([]byte, r.used), 0); err == nil {
			r.used = 0
		}
	}
}

func (r *reserve) flushAll(waiting []*Record) {
	failed := 0
	for _, record := range waiting {
		r.remove(record) // first, because a concurrent failure adds it again
		if err := record.flush(); err != nil {
			r.add(record, nil)
			if failed++; failed == maxFailures {
				return
			}
		}
	}
}

// allocateMemory takes memory for n bytes of events; false if there is none left.
func (r *reserve) allocateMemory(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory+n > maxUnwrittenTotal {
		return false
	}
	r.memory += n
	return true
}

// releaseMemory gives back what allocateMemory took.
func (r *reserve) releaseMemory(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory -= n
}
