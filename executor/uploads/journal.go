package uploads

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/files"
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

// leftoversFile, in the folder of uploads, lists the part files of the batch in work.
const leftoversFile = "batch.ndjson"

// maxLeftovers is how many bytes of it are read: a line for each folder of a batch, with
// paths of up to 4 KiB.
const maxLeftovers = 8 << 20

// leftovers records where a batch may leave its part file if the executor is killed.
// Otherwise such hidden files would stay in the user's folders.
type leftovers struct {
	path string
	file *os.File
}

// leftoverBegins is how each line begins.
const leftoverBegins = `{"folder":`

// leftover is one part file. Folder is bytes because JSON can't represent every name.
type leftover struct {
	Folder []byte `json:"folder"` // its real path
	Part   string `json:"part"`
}

// newBatchPartName is a unique name for the part files of a batch.
func newBatchPartName() string { return "." + strings.ToLower(rand.Text()) + files.PartSuffix }

// add records a part file. If that fails, as on a full disk, a hidden file may stay after a
// kill, which does no other harm.
func (l *leftovers) add(folder, part string) {
	if l.file == nil {
		_ = os.MkdirAll(filepath.Dir(l.path), 0o700)
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return
		}
		l.file = f
	}
	if line, err := json.Marshal(leftover{[]byte(folder), part}); err == nil {
		_, _ = l.file.Write(append(line, '\n'))
	}
}

// clear deletes the records, because no part file is left.
func (l *leftovers) clear() {
	if l.file != nil {
		l.file.Close()
		os.Remove(l.path)
	}
}

// removeLeftovers deletes the part files of a batch whose executor was killed. If a folder
// can't be opened now, its part file is kept. An error means that the record is damaged.
func removeLeftovers(roots *files.Roots, path string) error {
	f, err := bounded.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, maxLeftovers))
	for {
		text, err := lines.ReadBytes('\n')
		var one leftover
		beginning := min(len(text), len(leftoverBegins))
		switch {
		case err == io.EOF && string(text[:beginning]) == leftoverBegins[:beginning]:
			return os.Remove(path) // the end of the file, or a line that the kill left incomplete
		case err != nil, json.Unmarshal(text, &one) != nil, one.Part == "":
			return fmt.Errorf("%q is damaged: part files named .*%s may stay in your folders (%v)", path, files.PartSuffix, err)
		}
		one.remove(roots)
	}
}

func (l leftover) remove(roots *files.Roots) {
	if !files.IsPart(l.Part) || strings.Contains(l.Part, "/") {
		return
	}
	t, err := roots.TargetIn(string(l.Folder), l.Part)
	if err != nil {
		return
	}
	dir, err := t.OpenFolder()
	if err != nil {
		return
	}
	defer dir.Close()
	_ = dir.Remove(l.Part)
}

const (
	pieceBytes = 64 << 10 // bytes of one read and write
	// saveBytes is how many bytes of a part may arrive before the journal records them. A
	// killed executor loses at most these of each part.
	saveBytes = 1 << 20
)

// piece is a buffer for some bytes of a file. A pool keeps the buffers, because every part
// needs one.
type piece [pieceBytes]byte

var pieces = sync.Pool{New: func() any { return new(piece) }}

func newPiece() *piece { return pieces.Get().(*piece) }
func (p *piece) free() { pieces.Put(p) }

// incoming is a part that is being received. The upload is locked only while a piece is
// written, so that parts arrive side by side. Meanwhile it may be dropped, restarted or
// committed, by a sender that sent these bytes twice: each piece checks that first, and
// never writes into a file that is complete.
type incoming struct {
	*upload
	prefix  *prefixHash    // identifies the part file that file is
	file    *os.File       // nil if all bytes of the upload had arrived before
	left    contract.Range // of the part
	unsaved ranges.Set     // written, but not yet in the journal
}

// put receives the bytes of r from body.
func (o *upload) put(r contract.Range, body io.Reader) (contract.Upload, error) {
	p, err := o.open(r)
	if err != nil {
		return contract.Upload{}, err
	}
	return p.close(p.receive(body))
}

func (o *upload) open(r contract.Range) (*incoming, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped:
		return nil, ErrNoUpload
	case r.Offset < 0 || r.Length < 0 || r.Length > o.spec.SizeBytes || r.Offset > o.spec.SizeBytes-r.Length:
		return nil, fmt.Errorf("%w: offset %d, length %d, size %d", files.ErrBadRange, r.Offset, r.Length, o.spec.SizeBytes)
	case o.status != contract.UploadReceiving:
		return &incoming{upload: o, prefix: o.prefix, left: r}, nil
	}
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	dir.Close()
	o.failure = nil
	return &incoming{upload: o, prefix: o.prefix, file: f, left: r}, nil
}

// receive reads and writes all of the part. It keeps what arrived before an error.
func (p *incoming) receive(body io.Reader) error {
	buf := newPiece()
	defer buf.free()
	for p.left.Length > 0 {
		n, err := io.ReadFull(body, buf[:min(pieceBytes, p.left.Length)])
		if err := p.write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d bytes of the part did not arrive", files.ErrBadRange, p.left.Length)
		}
		if err != nil {
			return err
		}
	}
	switch _, err := io.ReadFull(body, buf[:1]); {
	case err == nil:
		return fmt.Errorf("%w: the part is longer than announced", files.ErrBadRange)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// write writes the bytes of data that have not arrived before, and records them.
func (p *incoming) write(data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := contract.Range{Offset: p.left.Offset, Length: int64(len(data))}
	p.left = p.left.After(r.Length)
	switch {
	case p.dropped:
		return ErrNoUpload
	case p.replacedLocked():
		return files.ErrChanged
	case p.status != contract.UploadReceiving:
		return nil // all bytes have arrived
	}
	needed := p.got.Missing(r)
	if len(p.got)+len(needed) > maxPieces {
		return fmt.Errorf("%w: more than %d pieces", files.ErrBadRange, maxPieces)
	}
	for _, w := range needed {
		n, err := p.file.WriteAt(data[w.Offset-r.Offset:w.End()-r.Offset], w.Offset)
		w.Length = int64(n)
		p.got, p.unsaved = p.got.Add(w), p.unsaved.Add(w)
		if err != nil {
			return files.WriteError(err)
		}
	}
	if p.unsaved.Total() < saveBytes {
		return nil
	}
	return p.saveLocked()
}

// replacedLocked reports whether the upload got a new part file since this part was opened.
func (p *incoming) replacedLocked() bool { return p.upload.prefix != p.prefix }

// saveLocked records in the journal what was written, and has it hashed.
func (p *incoming) saveLocked() error {
	if len(p.unsaved) == 0 || p.dropped || p.replacedLocked() || p.status == contract.UploadCommitted {
		return nil
	}
	if err := p.journal.restoreIfDeleted(p.record, p.got); err != nil {
		return files.WriteError(err)
	}
	for _, r := range p.unsaved {
		if err := p.journal.append(p.got, r); err != nil {
			return files.WriteError(err)
		}
	}
	p.unsaved = nil
	if p.got.Prefix()-p.prefix.Progress().HashedBytes >= saveBytes {
		p.enqueueLocked()
	}
	return nil
}

// close ends the part, with err from receive. Some file systems report only when a file is
// closed that they are full, and not which bytes they lost: then the upload starts again.
func (p *incoming) close(err error) (contract.Upload, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		if closeErr := p.file.Close(); closeErr != nil && !p.dropped && !p.replacedLocked() && p.status == contract.UploadReceiving {
			return contract.Upload{}, errors.Join(files.WriteError(closeErr), p.restartLocked())
		}
	}
	if saveErr := p.saveLocked(); err == nil {
		err = saveErr
	}
	if err == nil && p.dropped {
		err = ErrNoUpload
	}
	if err != nil {
		return contract.Upload{}, err
	}
	return p.answerLocked(), nil
}
