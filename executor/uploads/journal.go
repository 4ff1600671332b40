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

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

const (
	recordFile = "upload.json"
	rangesFile = "ranges"

	maxRecord  = 64 << 10 // bytes of upload.json: a path of 4 KiB, written three times
	maxJournal = 1 << 20  // bytes of the ranges file; at this size it is rewritten with merged ranges
	maxPieces  = 4096     // ranges of an upload: rewritten, they take less than a quarter of maxJournal
)

// record is the content of upload.json.
type record struct {
	contract.UploadStart
	// SHA256 is that of the whole file. It is set once the received bytes were verified.
	SHA256 string `json:"sha256,omitempty"`
	// Folder and Name are the target, with links resolved. They are bytes because JSON
	// can't represent every name.
	Folder []byte `json:"folder"`
	Name   []byte `json:"name"`
	// Linked means that a link is in the requested path. The file that the sender put at that
	// path earlier may then be another one, so none is replaced without Overwrite.
	Linked bool `json:"linked,omitempty"`
	// Placing is the name that the complete file is about to get, and Identity identifies
	// the file. Without them, all bytes would have to be sent again if the executor were
	// killed just after the rename.
	Placing  []byte `json:"placing,omitempty"`
	Identity string `json:"identity,omitempty"`
	// ETag is set when the file is committed.
	ETag string `json:"etag,omitempty"`
}

// journal is the folder of an upload in the state dir. It contains upload.json, which is
// replaced as a whole, and the received ranges, one in each line: the start and the end. If
// the executor is killed, at most the last line is incomplete, and its bytes are sent again.
type journal struct {
	dir  string
	file *os.File // open from the first line on
	size int64
}

func line(r contract.Range) []byte { return fmt.Appendf(nil, "%d %d\n", r.Offset, r.End()) }

// parseRanges reads the ranges file of an upload of size bytes. It stops at the first
// incomplete or damaged line; whole is the number of bytes before that.
func parseRanges(raw []byte, size int64) (got ranges.Set, whole int64) {
	for {
		text, rest, ok := bytes.Cut(raw, []byte("\n"))
		if !ok {
			return got, whole
		}
		var from, to int64
		n, err := fmt.Sscanf(string(text), "%d %d", &from, &to)
		r := contract.Range{Offset: from, Length: to - from}
		if err != nil || n != 2 || from < 0 || from >= to || to > size || !bytes.Equal(line(r), raw[:len(text)+1]) {
			return got, whole
		}
		got = got.Add(r)
		whole += int64(len(text)) + 1
		raw = rest
	}
}

// openJournal reads the journal in the folder dir.
func openJournal(dir string) (*journal, record, ranges.Set, error) {
	j := &journal{dir: dir}
	var rec record
	raw, err := bounded.ReadFile(j.path(recordFile), maxRecord)
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err == nil && rec.Path == "" {
		err = errors.New("it names no file")
	}
	if err != nil {
		return nil, rec, nil, fmt.Errorf("upload record %q: %w", j.path(recordFile), err)
	}
	raw, err = readBeginning(j.path(rangesFile), 2*maxJournal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, rec, nil, fmt.Errorf("upload in %q: %w", dir, err)
	}
	got, whole := parseRanges(raw, rec.SizeBytes)
	if whole < int64(len(raw)) {
		if err := os.Truncate(j.path(rangesFile), whole); err != nil {
			return nil, rec, nil, fmt.Errorf("upload in %q: %w", dir, err)
		}
	}
	j.size = whole
	return j, rec, got, nil
}

func readBeginning(path string, limit int64) ([]byte, error) {
	f, err := bounded.Open(path)
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

// replace replaces a file of the folder: a kill leaves either the old or the new one.
func (j *journal) replace(name string, raw []byte) error {
	fresh := j.path(name + ".new")
	if err := os.WriteFile(fresh, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, j.path(name))
}

// restoreIfDeleted creates the folder again, with its content, if it was deleted.
func (j *journal) restoreIfDeleted(rec record, got ranges.Set) error {
	if _, err := os.Stat(j.path(recordFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.save(rec); err != nil {
		return err
	}
	return j.rewrite(got)
}

// append records r, which is in got, all that was received. If the line does not fit on the
// disk, append removes the written part, so that the next one starts on a new line.
func (j *journal) append(got ranges.Set, r contract.Range) error {
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
	n, err := j.file.Write(line(r))
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(n)
	return nil
}

// rewrite replaces the ranges file with the ranges in got.
func (j *journal) rewrite(got ranges.Set) error {
	var raw []byte
	for _, r := range got {
		raw = append(raw, line(r)...)
	}
	j.close()
	if err := j.replace(rangesFile, raw); err != nil {
		return err
	}
	j.size = int64(len(raw))
	return nil
}

// clear deletes the ranges.
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

// lastUsed is when the upload was last requested or received bytes.
func (j *journal) lastUsed() (time.Time, error) {
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

// touch sets lastUsed to now. An error does no harm: the upload is only dropped earlier.
func (j *journal) touch() {
	now := time.Now()
	_ = os.Chtimes(j.dir, now, now)
}

// remove deletes the folder.
func (j *journal) remove() error {
	j.close()
	return os.RemoveAll(j.dir)
}
