package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

const (
	statesFile = "states.log"
	// ahead is how much disk is allocated for the lines to come, at least, in bytes. It is the
	// reserve for a full disk, so that code can run that deletes what fills it: a run needs three
	// lines of about 600 bytes, so that about 500 runs fit before one is refused.
	ahead = 1 << 20
	// growth is how many bytes of lines that do not count any more the file may have, beside as
	// many as those that count, before it is written anew.
	growth = 32 << 20
	// maxPast bounds the lines of forgotten executions when the file is written anew, in bytes.
	// Limits.Tombstones take less, unless all their fields are as long as they may be.
	maxPast = 96 << 20
	// maxPastText bounds each text of a forgotten execution.
	maxPastText = 200
	// maxLine bounds a line, in bytes: an event with its offset, or a state with the texts of an error.
	maxLine = 2 * contract.MaxEventBytes
)

// stateLine is a line of states.log about an execution: a complete snapshot. The last one counts.
type stateLine struct {
	contract.Execution
	CodeSHA256 string `json:"code_sha256"`
	Unstored   bool   `json:"unstored,omitempty"`
	LogBytes   int64  `json:"log_bytes,omitempty"`  // of all events
	KeptBytes  int64  `json:"kept_bytes,omitempty"` // of the events in its folder
	BlobBytes  int64  `json:"blob_bytes,omitempty"`
	Past       bool   `json:"past,omitempty"` // it is a tombstone: the folder is gone
}

func (l *stateLine) head() lineHead {
	return lineHead{ExecutionID: l.ExecutionID, RequestID: l.RequestID, Past: l.Past}
}

// jobLine is a line about a job: its record is what all its lines say together.
type jobLine struct {
	lineHead
	Record any `json:"record"`
}

// lineHead is what the index of states.log needs of a line.
type lineHead struct {
	ExecutionID string `json:"execution_id"`
	RequestID   string `json:"request_id"`
	Past        bool   `json:"past,omitempty"`
	More        bool   `json:"more,omitempty"` // the lines before it count too
}

// span is the place of a line in the file.
type span struct{ at, size int64 }

// pastLine is the place of a tombstone, with its two keys in states.byKey.
type pastLine struct {
	span
	id, request uint64
}

// states is the file of all states of all executions. Lines are appended, into blocks that were
// allocated before. Lines that do not count any more leave it when it is written anew.
type states struct {
	path string
	keep int // tombstones, at least
	log  *slog.Logger

	mu sync.Mutex
	linesFile
	compact   int64 // used, when it was written anew
	notBefore int64 // until used is that much, it is not written anew
}

// linesFile is the file and the places of the lines that count. What follows the lines are zeros.
type linesFile struct {
	file      *os.File
	is        fs.FileInfo       // the file, when it was opened
	used      int64             // where the next line goes
	allocated int64             // the size of the file
	torn      bool              // what is before used does not end a line
	live      map[string][]span // the lines that count of what is not forgotten, by its id
	past      []pastLine        // the oldest first
	byKey     map[uint64]int    // index in past, by the hash of either id
}

// openStates opens the file in dir and writes it anew. inUse says that dir has folders of
// executions, so that lines are expected. damaged: some lines cannot be read.
func openStates(dir string, keepPast int, inUse bool, log *slog.Logger) (s *states, damaged bool, err error) {
	s = &states{path: filepath.Join(dir, statesFile), keep: keepPast, log: log}
	var damage error
	kept := ""
	file, err := bounded.OpenFile(s.path, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, bounded.ErrNotFile) {
		damage = err
		if kept, err = keep.Aside(s.path); err == nil {
			file, err = bounded.OpenFile(s.path, os.O_RDWR|os.O_CREATE)
		}
	}
	if err != nil {
		return nil, false, err
	}
	if s.linesFile, err = newLinesFile(file); err != nil {
		return nil, false, err
	}
	if damage == nil {
		if damage, err = s.load(inUse); err != nil {
			return nil, false, errors.Join(err, file.Close())
		}
	}
	other, err := s.rewriteLocked(damage != nil && kept == "") // no other goroutine has it yet
	if err != nil {
		log.Warn("the states of executions can't be written anew; the file is used as it is", "path", s.path, "err", err)
	}
	if damage != nil {
		log.Warn("the states of executions are damaged; the file is kept under another name, and requests whose lines cannot be read would run again",
			"path", s.path, "kept", cmp.Or(kept, other), "err", damage)
	}
	return s, damage != nil, nil
}

func newLinesFile(file *os.File) (linesFile, error) {
	is, err := file.Stat()
	if err != nil {
		err = errors.Join(err, file.Close())
	}
	return linesFile{file: file, is: is, live: map[string][]span{}, byKey: map[uint64]int{}}, err
}

// load reads the file. damage tells of anything that no executor wrote, or of a line that a kill
// has torn.
func (s *linesFile) load(inUse bool) (damage, err error) {
	end, size, err := endOf(s.file)
	if err != nil {
		return nil, err
	}
	s.used, s.allocated = end, size
	lines := bufio.NewReaderSize(io.NewSectionReader(s.file, 0, end), 64<<10)
	damaged := 0
	for at := int64(0); ; {
		text, n, err := bounded.ReadLine(lines, maxLine)
		var head lineHead
		switch {
		case errors.Is(err, io.EOF):
			if s.torn = n > 0; s.torn || inUse && at == 0 && size > 0 {
				damaged++
			}
			if damaged > 0 {
				damage = fmt.Errorf("%d lines cannot be read", damaged)
			}
			return damage, nil
		case err != nil:
			return nil, err
		case json.Unmarshal(text, &head) != nil || head.ExecutionID == "" || head.RequestID == "":
			damaged++
		default:
			s.note(head, span{at, n})
		}
		at += n
	}
}

// endOf returns where the content of a file ends, and the zeros begin that are allocated for more.
func endOf(f *os.File) (end, size int64, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, 0, err
	}
	buffer := make([]byte, 64<<10)
	for end = size; end > 0; {
		from := max(0, end-int64(len(buffer)))
		part := buffer[:end-from]
		if _, err := f.ReadAt(part, from); err != nil {
			return 0, 0, err
		}
		if !bytes.Equal(part, zeros[:len(part)]) {
			return from + int64(len(bytes.TrimRight(part, "\x00"))), size, nil
		}
		end = from
	}
	return 0, size, nil
}

// seeds are those of the hashes of an execution's id and of its request_id.
var seeds = struct{ id, request maphash.Seed }{maphash.MakeSeed(), maphash.MakeSeed()}

// note notes the place of a line.
func (s *linesFile) note(head lineHead, at span) {
	switch {
	case head.Past:
	case head.More:
		s.live[head.ExecutionID] = append(s.live[head.ExecutionID], at)
		return
	default:
		s.live[head.ExecutionID] = []span{at}
		return
	}
	delete(s.live, head.ExecutionID)
	s.notePast(pastLine{at, maphash.String(seeds.id, head.ExecutionID), maphash.String(seeds.request, head.RequestID)})
}

func (s *linesFile) notePast(line pastLine) {
	s.byKey[line.id], s.byKey[line.request] = len(s.past), len(s.past)
	s.past = append(s.past, line)
}

// append writes a line. The error is ErrDiskFull if neither the disk nor the reserve has room.
func (s *states) append(head lineHead, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.restoreLocked(); err != nil {
		return err
	}
	at := s.used
	if s.torn { // at the end of the disk: it becomes a line that cannot be read
		text, at = append([]byte{'\n'}, text...), at+1
	}
	if err := s.allocate(int64(len(text))); err != nil {
		return err
	}
	if n, err := s.file.WriteAt(text, s.used); err != nil {
		_, wipeErr := s.file.WriteAt(zeros[:min(n, len(zeros))], s.used)
		return errors.Join(err, wipeErr)
	}
	s.used += int64(len(text))
	s.torn = false
	s.note(head, span{at, s.used - at})
	return nil
}

// zeros are what is written to allocate blocks: unlike fallocate, every file system can do that.
var zeros [ahead]byte

// allocate makes room for n bytes, and for those to come. The error is ErrDiskFull if there
// is none for n bytes.
func (s *linesFile) allocate(n int64) (err error) {
	for err == nil && s.allocated < s.used+n+ahead {
		var written int
		written, err = s.file.WriteAt(zeros[:], s.allocated)
		s.allocated += int64(written)
	}
	switch {
	case s.used+n <= s.allocated:
		return nil
	case isFull(err):
		return ErrDiskFull
	}
	return err
}

// restore writes the file again if it was deleted, or moved away with its folder: `git clean -fdx`
// in the workdir removes the state folder of a running executor. The content can still be read.
func (s *states) restore() (missing bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restoreLocked()
}

func (s *states) restoreLocked() (missing bool, err error) {
	if !gone(s.is, s.path) {
		return false, nil
	}
	_, err = s.rewriteLocked(false)
	return true, err
}

// compactIfDue writes the file anew if much of it does not count any more.
func (s *states) compactIfDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used < s.notBefore || s.used < 2*s.compact+growth && len(s.past) < 2*s.keep {
		return
	}
	if _, err := s.rewriteLocked(false); err != nil {
		s.notBefore = s.used + ahead // on a full disk each attempt takes what is left of it
		s.log.Warn("writing the states of executions anew", "err", err)
	}
}

// rewriteLocked writes the lines that count, and of the tombstones the newest, to a new file, which
// replaces this one. A kill leaves the one or the other. After an error, this one is used on. With
// aside, this one is kept under another name.
func (s *states) rewriteLocked(aside bool) (kept string, err error) {
	temp := s.path + ".new"
	if err := os.MkdirAll(filepath.Dir(temp), 0o700); err != nil {
		return "", err
	}
	file, err := bounded.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return "", err
	}
	fresh, err := newLinesFile(file)
	if err != nil {
		return "", err
	}
	err = s.copyLocked(&fresh)
	if full := fresh.allocate(ahead); err == nil && !gone(s.is, s.path) {
		err = full // the old one may have a reserve
	}
	if err == nil && aside {
		kept, err = s.keepAside()
	}
	if err == nil {
		err = os.Rename(temp, s.path)
	}
	if err != nil {
		return "", errors.Join(err, file.Close(), os.Remove(temp))
	}
	s.file.Close()
	s.linesFile, s.compact, s.notBefore = fresh, fresh.used, 0
	return kept, nil
}

// copyLocked copies the lines that count: the tombstones, then the others in their order.
func (s *states) copyLocked(to *linesFile) error {
	out := bufio.NewWriterSize(to.file, 1<<20)
	var text []byte
	copied := func(from span) (at span, err error) {
		text = slices.Grow(text[:0], int(from.size))[:from.size]
		if _, err = s.file.ReadAt(text, from.at); err == nil {
			_, err = out.Write(text)
		}
		at = span{to.used, from.size}
		to.used += from.size
		return at, err
	}
	for _, line := range s.newestPastLocked() {
		at, err := copied(line.span)
		if err != nil {
			return err
		}
		to.notePast(pastLine{at, line.id, line.request})
	}
	for _, id := range s.idsLocked() {
		for _, from := range s.live[id] {
			at, err := copied(from)
			if err != nil {
				return err
			}
			to.live[id] = append(to.live[id], at)
		}
	}
	to.allocated = to.used
	return out.Flush()
}

// newestPastLocked returns the tombstones within the bounds.
func (s *states) newestPastLocked() []pastLine {
	from, room := len(s.past), int64(maxPast)
	for from > max(0, len(s.past)-s.keep) && s.past[from-1].size <= room {
		from--
		room -= s.past[from].size
	}
	return s.past[from:]
}

// idsLocked returns the ids of what is not forgotten, in the order of the last lines.
func (s *states) idsLocked() []string {
	last := func(id string) int64 { return s.live[id][len(s.live[id])-1].at }
	return slices.SortedFunc(maps.Keys(s.live), func(a, b string) int { return cmp.Compare(last(a), last(b)) })
}

// keepAside keeps the file under another name too: a kill before its place is taken loses nothing.
func (s *states) keepAside() (kept string, err error) {
	other := s.path + ".old"
	if err := os.Link(s.path, other); err != nil { // not every file system has links
		other = s.path
	}
	return keep.Aside(other)
}

// read decodes a line.
func (s *linesFile) read(at span, line any) error {
	text := make([]byte, at.size)
	if _, err := s.file.ReadAt(text, at.at); err != nil {
		return err
	}
	return json.Unmarshal(text, line)
}

// pastID finds the tombstone of an execution.
func (s *states) pastID(id string) (line stateLine, ok bool) {
	ok = s.find(maphash.String(seeds.id, id), &line)
	return line, ok && line.ExecutionID == id
}

// pastRequest finds the tombstone of a request_id.
func (s *states) pastRequest(id string) (line stateLine, ok bool) {
	ok = s.find(maphash.String(seeds.request, id), &line)
	return line, ok && line.RequestID == id
}

func (s *states) find(key uint64, line any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.byKey[key]
	return ok && s.read(s.past[n].span, line) == nil
}

// gone reports whether an open file has been deleted, or moved away with its folder.
func gone(is fs.FileInfo, path string) bool {
	named, err := os.Lstat(path)
	return err != nil || !os.SameFile(is, named)
}
