package uploads

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"colabrelay/shared/contract"
)

const (
	recordFile = "upload.json"
	rangesFile = "ranges"

	maxRecord  = 64 << 10 // bytes of upload.json: a path of 4 KiB, written three times
	maxJournal = 1 << 20  // bytes of the ranges file; then it is written anew, without what was merged
	maxPieces  = 8192     // spans an upload may be in at once: what of them is written anew stays under half of maxJournal
)

// record is what an upload is, as upload.json holds it.
type record struct {
	contract.UploadStart
	// Folder and Name are where the file is to go, links resolved. They are bytes, as
	// JSON can't carry every name.
	Folder []byte `json:"folder"`
	Name   []byte `json:"name"`
	// Placing is the name under which the whole file is being put in its place, and
	// Identity tells that file. Without them a kill just after the rename would have
	// all bytes sent again.
	Placing  []byte `json:"placing,omitempty"`
	Identity string `json:"identity,omitempty"`
	// ETag is set once the file is in its place.
	ETag string `json:"etag,omitempty"`
}

// shown is where a placed file is, as a caller knows it who asked for the path abs.
func (r record) shown(abs string) string {
	switch {
	case string(r.Placing) == string(r.Name):
		return contract.EscapeName(abs)
	case filepath.Base(abs) == string(r.Name):
		return contract.EscapeName(filepath.Join(filepath.Dir(abs), string(r.Placing)))
	}
	return contract.EscapeName(filepath.Join(string(r.Folder), string(r.Placing))) // past a link
}

// received is which bytes of an upload are there. All in proven are in all too.
type received struct {
	all    ranges
	proven ranges // came whole, under a signature
}

// add counts s as received. What is proven stays so: bytes that are not are never
// written over it.
func (r received) add(s span, proven bool) received {
	r.all = r.all.add(s)
	if proven {
		r.proven = r.proven.add(s)
	}
	return r
}

// wanted is what of s is worth writing.
func (r received) wanted(s span, proven bool) ranges {
	if proven {
		return r.proven.missing(s)
	}
	return r.all.missing(s)
}

// unproven reports whether some bytes are.
func (r received) unproven() bool { return r.all.bytes() != r.proven.bytes() }

// journal is an upload's folder in the state dir: upload.json, replaced as a
// whole, and the ranges received, one a line: "p" proven or "u" not, where it
// begins, where it ends. A kill at any byte leaves at most a torn last line, whose
// bytes are then sent again.
type journal struct {
	dir  string
	file *os.File // open from the first line on
	size int64
}

func line(s span, proven bool) []byte {
	kind := byte('u')
	if proven {
		kind = 'p'
	}
	return fmt.Appendf(nil, "%c %d %d\n", kind, s.from, s.to)
}

// parseRanges reads a ranges file of an upload of size bytes. It ends at the first
// line that is torn or damaged; whole is how many bytes came before that.
func parseRanges(raw []byte, size int64) (got received, whole int64) {
	for {
		text, rest, ok := bytes.Cut(raw, []byte("\n"))
		if !ok {
			return got, whole
		}
		var kind byte
		var s span
		n, err := fmt.Sscanf(string(text), "%c %d %d", &kind, &s.from, &s.to)
		if err != nil || n != 3 || s.from < 0 || s.from >= s.to || s.to > size || !bytes.Equal(line(s, kind == 'p'), raw[:len(text)+1]) {
			return got, whole
		}
		got = got.add(s, kind == 'p')
		whole += int64(len(text)) + 1
		raw = rest
	}
}

// openJournal reads the folder dir of an upload.
func openJournal(dir string) (*journal, record, received, error) {
	j := &journal{dir: dir}
	var rec record
	raw, err := readBounded(j.path(recordFile), maxRecord)
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return nil, rec, received{}, fmt.Errorf("upload in %q: %w", dir, err)
	}
	raw, err = readBounded(j.path(rangesFile), 2*maxJournal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, rec, received{}, fmt.Errorf("upload in %q: %w", dir, err)
	}
	got, whole := parseRanges(raw, rec.SizeBytes)
	if whole < int64(len(raw)) {
		if err := os.Truncate(j.path(rangesFile), whole); err != nil {
			return nil, rec, received{}, fmt.Errorf("upload in %q: %w", dir, err)
		}
	}
	j.size = whole
	return j, rec, got, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (j *journal) path(name string) string { return filepath.Join(j.dir, name) }

// save replaces upload.json.
func (j *journal) save(rec record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	return j.replace(recordFile, raw)
}

// replace writes a file of the folder anew: a kill leaves the old or the new one.
func (j *journal) replace(name string, raw []byte) error {
	fresh := j.path(name + ".new")
	if err := os.WriteFile(fresh, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, j.path(name))
}

// comeBack makes a folder that was deleted again, with what it held.
func (j *journal) restoreIfDeleted(rec record, got received) error {
	if _, err := os.Stat(j.path(recordFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.save(rec); err != nil {
		return err
	}
	return j.rewrite(got)
}

// append notes s; got is what was noted before. What was written of a line that
// did not fit is taken back, so that the next line begins on its own.
func (j *journal) append(got received, s span, proven bool) error {
	if j.size >= maxJournal {
		if err := j.rewrite(got); err != nil {
			return err
		}
	}
	if j.file == nil {
		f, err := os.OpenFile(j.path(rangesFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		j.file = f
	}
	n, err := j.file.Write(line(s, proven))
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(n)
	return nil
}

// rewrite replaces the ranges file by what got holds.
func (j *journal) rewrite(got received) error {
	var raw []byte
	for _, s := range got.all {
		raw = append(raw, line(s, false)...)
	}
	for _, s := range got.proven {
		raw = append(raw, line(s, true)...)
	}
	j.close()
	if err := j.replace(rangesFile, raw); err != nil {
		return err
	}
	j.size = int64(len(raw))
	return nil
}

// clear forgets the ranges.
func (j *journal) clear() error {
	j.close()
	if err := os.Remove(j.path(rangesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.size = 0
	return nil
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// touched is when the upload was last asked for or received something.
func (j *journal) touched() (time.Time, error) {
	info, err := os.Stat(j.dir)
	if err != nil {
		return time.Time{}, err
	}
	at := info.ModTime()
	if info, err := os.Stat(j.path(rangesFile)); err == nil && info.ModTime().After(at) {
		at = info.ModTime()
	}
	return at, nil
}

// touch keeps the upload from being dropped. Where it fails, touched is earlier.
func (j *journal) touch() {
	now := time.Now()
	_ = os.Chtimes(j.dir, now, now)
}

// remove drops the folder.
func (j *journal) remove() error {
	j.close()
	return os.RemoveAll(j.dir)
}
