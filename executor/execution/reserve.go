package execution

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	reserveFile = "reserve.ndjson"
	// reserveBytes is how much of the disk is held back for state lines: three of some
	// 600 bytes a run, so about 500 runs on a full disk before one is refused.
	reserveBytes = 1 << 20
	// maxHeldLog and maxHeldTotal bound the events that are held in memory while the
	// disk is full: of one execution, and of all. What comes after that is lost, and
	// its execution says so.
	maxHeldLog   = 4 << 20
	maxHeldTotal = 64 << 20
	// maxFailures ends one attempt: a log of megabytes may have no room where a state
	// line has, and thousands of attempts a second would only load the disk.
	maxFailures = 16
	// retryTime is how long after a failed write the next one is tried.
	retryTime = time.Second
)

// diskFullNote is told with an execution that a full disk keeps from being written down.
const diskFullNote = "the VM's disk is full: this run is kept in the executor's memory only and is lost when the executor ends; delete files on the VM (code that does so runs)"

// isFull reports an error of a disk without room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, ErrDiskFull)
}

// reserve lets executions go on while the disk is full, so that code can delete what
// fills it. It is a file whose blocks are allocated already: state lines are written
// over them, which takes no room that another program could take first. It also knows
// which executions are not written down in their own folders yet.
type reserve struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex
	file     *os.File // nil while it can't be made
	used     int64
	held     int64 // bytes of events in memory
	unsaved  map[*entry]bool
	flushing bool
}

// openReserve takes the reserve in dir, and returns the state lines that an earlier
// executor left in it, the last one of each execution.
func openReserve(dir string, log *slog.Logger) (*reserve, map[string]stateLine) {
	r := &reserve{path: filepath.Join(dir, reserveFile), log: log, unsaved: map[*entry]bool{}}
	left := map[string]stateLine{}
	if f, err := os.Open(r.path); err == nil {
		raw, _ := io.ReadAll(io.LimitReader(f, reserveBytes)) // what can't be read is left out
		f.Close()
		raw, _, _ = bytes.Cut(raw, []byte{0})
		for lines := bufio.NewReader(bytes.NewReader(raw)); ; {
			data, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var line stateLine
			if json.Unmarshal(data, &line) == nil && line.ExecutionID != "" && line.RequestID != "" {
				left[line.ExecutionID] = line
			}
			r.used += int64(len(data))
		}
	}
	r.allocate()
	return r, left
}

// allocate makes the file and takes its blocks. Where there is no room for them it is
// tried again later.
func (r *reserve) allocate() {
	if r.file != nil && deleted(r.file) {
		r.file.Close()
		r.file, r.used = nil, 0
	}
	if r.file != nil {
		return
	}
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt(make([]byte, reserveBytes-r.used), r.used)
	}
	if err != nil {
		r.log.Warn("no disk space could be reserved", "component", "execution", "err", err)
		if f != nil {
			f.Close()
		}
		return
	}
	r.file = f
}

// lost reports that the folder was deleted: the reserve in it is always open.
func (r *reserve) lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		return deleted(r.file)
	}
	_, err := os.Stat(filepath.Dir(r.path))
	return err != nil
}

// comeBack makes a deleted reserve again.
func (r *reserve) comeBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allocate()
}

// put writes a state line that has no room in its folder.
func (r *reserve) put(line []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil || deleted(r.file) || r.used+int64(len(line)) >= reserveBytes {
		return ErrDiskFull
	}
	if _, err := r.file.WriteAt(line, r.used); err != nil {
		return err
	}
	r.used += int64(len(line))
	return nil
}

// later notes that e is to be written down again.
func (r *reserve) later(e *entry, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unsaved) == 0 {
		r.log.Error("executions can't be written down; it is tried again until it works", "component", "execution", "execution_id", e.id, "err", cause)
	}
	r.unsaved[e] = true
}

// again notes what flush is to write.
func (r *reserve) again(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved[e] = true
}

// never takes back later, for an execution that was not accepted or is forgotten.
func (r *reserve) never(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unsaved, e)
}

// waiting reports whether flush has something to do.
func (r *reserve) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unsaved) > 0 || r.flushing
}

// flush writes down what could not be written before. Once all is, the reserve is
// empty again.
func (r *reserve) flush() {
	r.mu.Lock()
	waiting := make([]*entry, 0, len(r.unsaved))
	for e := range r.unsaved {
		waiting = append(waiting, e)
	}
	r.flushing = true
	r.mu.Unlock()
	r.flushAll(waiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flushing = false; len(r.unsaved) > 0 {
		return
	}
	if len(waiting) > 0 {
		r.log.Info("all executions are written down again", "component", "execution", "count", len(waiting))
	}
	r.allocate()
	if r.file != nil && r.used > 0 {
		if _, err := r.file.WriteAt(make([]byte, r.used), 0); err == nil {
			r.used = 0
		}
	}
}

func (r *reserve) flushAll(waiting []*entry) {
	failed := 0
	for _, e := range waiting {
		r.never(e) // before it is tried: what fails meanwhile, elsewhere, notes it again
		if err := e.flush(); err != nil {
			r.again(e)
			if failed++; failed == maxFailures {
				return // the others would fail as well
			}
		}
	}
}

// hold takes room in memory for n bytes of events; false when there is none.
func (r *reserve) hold(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held+n > maxHeldTotal {
		return false
	}
	r.held += n
	return true
}

// release gives back what hold took.
func (r *reserve) release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= n
}

// states is an execution's state file.
type states struct {
	path    string
	file    *os.File // nil while it is not open
	ended   bool     // the last line is known
	unsaved bool     // the newest line is not in the file
}

// append writes a line. A file that was deleted is made again, its folder too.
func (s *states) append(line []byte) error {
	if s.file != nil && deleted(s.file) {
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
	end, seekErr := s.file.Seek(0, io.SeekEnd) // no half line may stand before the next one
	return errors.Join(err, seekErr, s.file.Truncate(end-int64(n)))
}

func (s *states) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
