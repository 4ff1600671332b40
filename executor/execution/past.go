package execution

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

const (
	pastFile  = "past.ndjson"   // appended to
	olderFile = "past.1.ndjson" // the one before it
	// pastBytes bounds one of the two files: Limits.Past records take less, unless all
	// their fields are as long as they may be.
	pastBytes = 96 << 20
	// maxPastText bounds each text of a record.
	maxPastText = 200
	// maxPastLine bounds a record: a damaged file must not be read whole as one line.
	maxPastLine = 8 << 10
)

// pastRun is what is known of an execution whose folder is gone. Keys are short: there
// may be hundreds of thousands.
type pastRun struct {
	ID        string          `json:"id"`
	RequestID string          `json:"r"`
	Code      string          `json:"h"` // SHA-256, base64
	Unstored  bool            `json:"u,omitempty"`
	Status    contract.Status `json:"s"`
	KernelID  string          `json:"k,omitempty"`
	Count     int             `json:"n,omitempty"`
	Created   time.Time       `json:"c"`
	Started   *time.Time      `json:"b,omitempty"`
	Finished  *time.Time      `json:"f,omitempty"`
	Timeout   float64         `json:"t,omitempty"`
	Next      int64           `json:"o,omitempty"` // offset after its last event
	Bytes     int64           `json:"l,omitempty"` // of its log
	EName     string          `json:"e,omitempty"`
	EValue    string          `json:"v,omitempty"`
	Reason    string          `json:"w,omitempty"`
}

// past is the record of executions that are forgotten otherwise, so that their
// request_ids still run nothing: two append-only files, the older one dropped when
// the newer is full, and tables in memory that find a record's place in them.
type past struct {
	dir  string
	most int // records of one file

	mu    sync.Mutex
	newer *pastLog
	older *pastLog // nil while there is none
}

// openPast reads the files of an earlier executor.
func openPast(dir string, most int) (*past, error) {
	p := &past{dir: dir, most: most}
	var err error
	if p.older, err = openPastLog(filepath.Join(dir, olderFile), os.O_RDWR); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		p.newer, err = openPastLog(filepath.Join(dir, pastFile), os.O_RDWR|os.O_CREATE)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("reading the record of past executions: %w", err)
	}
	return p, nil
}

// add writes a record down.
func (p *past) add(r pastRun) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.comeBack(); err != nil {
		return err
	}
	if p.newer.count >= p.most || p.newer.size+int64(len(line)) >= pastBytes {
		if err := p.rotate(); err != nil {
			return err
		}
	}
	return p.newer.add(r, append(line, '\n'))
}

// mend writes files that were deleted again.
func (p *past) mend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.comeBack()
}

func (p *past) comeBack() error { return errors.Join(p.newer.comeBack(), p.older.comeBack()) }

// rotate drops the older file and begins a new one.
func (p *past) rotate() error {
	older := filepath.Join(p.dir, olderFile)
	if err := os.Rename(p.newer.path, older); err != nil {
		return err
	}
	fresh, err := openPastLog(p.newer.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return errors.Join(err, os.Rename(older, p.newer.path)) // the newer one goes on
	}
	p.older.close()
	p.older, p.newer = p.newer, fresh
	p.older.path = older
	return nil
}

// byRequest finds the execution of a request_id.
func (p *past) byRequest(id string) (pastRun, bool) {
	return p.find(func(l *pastLog) *table { return &l.byRequest }, id, func(r pastRun) bool { return r.RequestID == id })
}

// byID finds an execution.
func (p *past) byID(id string) (pastRun, bool) {
	return p.find(func(l *pastLog) *table { return &l.byID }, id, func(r pastRun) bool { return r.ID == id })
}

func (p *past) find(in func(*pastLog) *table, key string, is func(pastRun) bool) (pastRun, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range []*pastLog{p.newer, p.older} {
		if l == nil {
			continue
		}
		for position := range in(l).places(key) {
			if r, err := l.read(position); err == nil && is(r) {
				return r, true
			}
		}
	}
	return pastRun{}, false
}

func (p *past) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newer.close()
	p.older.close()
}

// pastLog is one of the files.
type pastLog struct {
	path            string
	file            *os.File
	size            int64
	count           int
	byRequest, byID table
}

// openPastLog reads a file's records. A line that a kill tore is cut off; one that
// can't be read otherwise is passed over.
func openPastLog(path string, flag int) (*pastLog, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	l := &pastLog{path: path, file: f, byRequest: newTable(), byID: newTable()}
	if err := l.index(); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

func (l *pastLog) index() error {
	if err := cutTornLine(l.path); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(l.file, maxPastLine)
	for {
		line, err := lines.ReadSlice('\n')
		position := l.size
		l.size += int64(len(line))
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return err
		}
		var r struct {
			ID        string `json:"id"`
			RequestID string `json:"r"`
		}
		if json.Unmarshal(line, &r) == nil {
			l.note(r.ID, r.RequestID, position)
		}
	}
}

func (l *pastLog) note(id, requestID string, position int64) {
	l.count++
	l.byID.put(id, position)
	l.byRequest.put(requestID, position)
}

// add appends a record's line. Half a line that was written is taken back.
func (l *pastLog) add(r pastRun, line []byte) error {
	if n, err := l.file.WriteAt(line, l.size); err != nil {
		if n > 0 {
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return err
	}
	l.note(r.ID, r.RequestID, l.size)
	l.size += int64(len(line))
	return nil
}

func (l *pastLog) read(position int64) (pastRun, error) {
	var r pastRun
	section := io.NewSectionReader(l.file, position, maxPastLine)
	return r, json.NewDecoder(section).Decode(&r)
}

// comeBack writes a file that was deleted anew: what it held is still read through
// its handle.
func (l *pastLog) comeBack() error {
	if l == nil || !deleted(l.file) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, io.NewSectionReader(l.file, 0, l.size)); err != nil {
		f.Close()
		os.Remove(l.path)
		return err
	}
	l.file.Close()
	l.file = f
	return nil
}

func (l *pastLog) close() {
	if l != nil {
		l.file.Close()
	}
}

// pastOf is what is kept of an execution that is forgotten.
func pastOf(e *entry) pastRun {
	x := e.snapshot()
	sum, _ := hex.DecodeString(e.digest)
	r := pastRun{
		ID: e.id, RequestID: e.requestID, Code: base64.RawStdEncoding.EncodeToString(sum), Unstored: e.unstored,
		Status: x.Status, KernelID: x.KernelID, Count: x.ExecutionCount,
		Created: x.CreatedAt, Started: x.StartedAt, Finished: x.FinishedAt, Timeout: x.TimeoutSeconds,
		Next: x.NextOffset, Bytes: e.log.everWritten(), Reason: cut(x.Reason, maxPastText),
	}
	if x.Error != nil {
		r.EName, r.EValue = cut(x.Error.EName, maxPastText), cut(x.Error.EValue, maxPastText)
	}
	return r
}

// entry is the execution as far as it is known: a gap stands for all its events.
func (r pastRun) entry(dir string) *entry {
	sum, _ := base64.RawStdEncoding.DecodeString(r.Code)
	dir = filepath.Join(dir, r.ID)
	reason := "its output is no longer kept: newer executions took its place"
	if r.Reason != "" {
		reason = r.Reason + "; " + reason
	}
	line := stateLine{CodeSHA256: hex.EncodeToString(sum), Unstored: r.Unstored, Execution: contract.Execution{
		ExecutionID: r.ID, RequestID: r.RequestID, Status: r.Status, KernelID: r.KernelID, ExecutionCount: r.Count,
		CreatedAt: r.Created, StartedAt: r.Started, FinishedAt: r.Finished, TimeoutSeconds: r.Timeout, Reason: reason,
	}}
	if r.EName != "" {
		line.Error = &contract.ExecutionError{EName: r.EName, EValue: r.EValue}
	}
	log := &eventLog{dir: dir, loaded: true, retired: true, next: r.Next, written: r.Bytes}
	return newEntry(dir, line, log, &blobStore{dir: dir})
}
