package uploads

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/executor/files"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/partfile"
	"colabrelay/shared/ranges"
)

const (
	pieceBytes = 64 << 10 // bytes of one read and write
	maxRecord  = 1 << 20  // bytes of a record: contract.MaxUploadRanges ranges, and a path of 4 KiB, written three times

	recordSuffix = ".json"
	freshSuffix  = ".new" // of a file until it replaces the old one
)

// record is what the state folder has of an upload.
type record struct {
	contract.UploadStart
	// Folder and Name are the target, with links resolved. They are bytes because JSON
	// can't represent every name.
	Folder []byte `json:"folder"`
	Name   []byte `json:"name"`
	// Linked means that a link is in the requested path. The file that the sender put at that
	// path earlier may then be another one, so none is replaced without Overwrite.
	Linked   bool       `json:"linked,omitempty"`
	Batch    bool       `json:"batch,omitempty"` // it is of no upload: a batch may have left its part file in Folder
	Received ranges.Set `json:"received"`
}

// upload is a file that is being received. Its part file and its record are on disk; the
// fields mirror them. It exists as long as its part file does.
type upload struct {
	id    string // random
	spec  contract.UploadStart
	part  string // the part file's name
	roots *files.Roots
	path  string // of the record

	digests *files.Digests
	used    time.Time // Store.mu guards it

	committing sync.Mutex // also while it is looked at whether somebody commits
	received   *partfile.Received

	mu     sync.Mutex
	record record      // but for what was received
	file   fs.FileInfo // of the part file, once it was opened
	ended  bool        // it is committed or dropped
}

// partName is the same for equal starts: if the record of an upload is lost, its part file is
// replaced, not left.
func partName(s contract.UploadStart) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q %v%s%s", s.Path, s.SizeBytes, s.Version, s.Overwrite, s.Replaces, s.Source))
	return "." + hex.EncodeToString(sum[:8]) + files.PartSuffix
}

// answer is the upload with a status.
func (o *upload) answer(status contract.UploadStatus) contract.Upload {
	out := contract.Upload{UploadID: o.id, Status: status, Path: o.spec.Path, Missing: o.received.Missing()}
	if abs, err := o.roots.Absolute(o.spec.Path); err == nil { // checked when the upload was started
		out.Path = contract.EscapeName(abs)
	}
	return out
}

// create creates the part file, whose folders are created too, and the record. The upload is
// locked already.
func (o *upload) create() (contract.Upload, error) {
	defer o.mu.Unlock()
	t, err := o.roots.Target(o.spec.Path)
	if err != nil {
		return contract.Upload{}, err
	}
	dir, err := t.OpenOrMake()
	if err != nil {
		return contract.Upload{}, err
	}
	defer dir.Close()
	if err := checkSpace(dir, o.spec.SizeBytes); err != nil {
		return contract.Upload{}, err
	}
	o.record = record{UploadStart: o.spec, Folder: []byte(t.Folder()), Name: []byte(t.Name), Linked: t.Linked}
	if err := o.save(nil); err != nil {
		return contract.Upload{}, err
	}
	if err := newPart(dir, o.part, func(f *os.File) error { return f.Truncate(o.spec.SizeBytes) }); err != nil {
		return contract.Upload{}, err
	}
	return o.answer(contract.UploadReceiving), nil
}

// resume prepares an upload that an equal start made to receive the missing bytes.
func (o *upload) resume() (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return contract.Upload{}, ErrNoUpload
	}
	if !o.committing.TryLock() {
		return o.answer(contract.UploadHashing), nil
	}
	defer o.committing.Unlock()
	dir, f, err := o.openPart(os.O_WRONLY)
	if err != nil {
		return contract.Upload{}, err
	}
	defer dir.Close()
	defer f.Close()
	if err := checkSpace(dir, o.spec.SizeBytes-o.received.Total()); err != nil {
		return contract.Upload{}, err
	}
	now := time.Now()
	_ = os.Chtimes(o.path, now, now) // otherwise the upload is only dropped earlier
	return o.answer(contract.UploadReceiving), nil
}

// wrap adds the path of the upload to err.
func (o *upload) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upload to %q: %w", o.spec.Path, err)
}

// busy reports whether the upload is being created or committed.
func (o *upload) busy() bool {
	if !o.mu.TryLock() {
		return true
	}
	defer o.mu.Unlock()
	if !o.committing.TryLock() {
		return true
	}
	o.committing.Unlock()
	return false
}

// drop deletes the record and the part file. A committed upload has neither.
func (o *upload) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	o.ended = true
	o.received.End(ErrNoUpload)
	if dir, err := o.openFolder(); err == nil { // else its folder is missing, as on an unmounted Drive
		_ = dir.Remove(o.part)
		dir.Close()
	}
	_ = os.Remove(o.path)
}

// save replaces the record. A kill leaves either the old or the new one.
func (o *upload) save(received ranges.Set) error {
	all := o.record
	all.Received = received
	return files.WriteError(writeJSON(o.path, &all))
}

// writeJSON replaces a file in the state folder, which need not outlive the VM.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+freshSuffix, text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+freshSuffix, path)
	}
	return err
}

func readJSON(path string, limit int64, v any) error {
	text, err := bounded.ReadFile(path, limit)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	return err
}

// A part file is the hidden file beside the target that an upload is received in. It is on
// the target's file system, so that one rename gives it its name. It has its full size from
// the start, with holes for missing bytes.

// openFolder opens the folder of the record. ErrNoUpload means that it is a link now, so that the
// path leads to another folder.
func (o *upload) openFolder() (*files.Dir, error) {
	t, err := o.roots.TargetIn(string(o.record.Folder), string(o.record.Name))
	if err != nil {
		return nil, err
	}
	dir, err := t.OpenFolder()
	if errors.Is(err, files.ErrChanged) {
		err = ErrNoUpload
	}
	return dir, err
}

// openPart opens the part file and its folder. ErrNoUpload means that the file was deleted or
// replaced.
func (o *upload) openPart(flag int) (*files.Dir, *os.File, error) {
	dir, err := o.openFolder()
	if err != nil {
		return nil, nil, err
	}
	f, info, err := openPart(dir, o.part, o.spec.SizeBytes, flag)
	if err == nil && o.file != nil && !os.SameFile(o.file, info) {
		f.Close()
		err = ErrNoUpload
	}
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	o.file = info
	return dir, f, nil
}

func openPart(dir *files.Dir, name string, size int64, flag int) (*os.File, fs.FileInfo, error) {
	f, err := files.OpenRegular(dir, name, flag)
	switch {
	case errors.Is(err, files.ErrNotFound), errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrIsDir), errors.Is(err, files.ErrChanged):
		return nil, nil, ErrNoUpload
	case err != nil:
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		// A file with a second name is not ours: never write to it.
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Size() != size || flag != os.O_RDONLY && st.Nlink != 1 {
			err = ErrNoUpload
		}
	}
	if err != nil {
		f.Close()
	}
	return f, info, err
}

// newPart creates a part file, in place of an old one, and has fill write it. If fill
// fails, the file is deleted.
func newPart(dir *files.Dir, name string, fill func(*os.File) error) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.WriteError(err)
	}
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return files.WriteError(err)
	}
	if err = cmp.Or(fill(f), f.Close()); err != nil {
		dir.Remove(name)
	}
	return files.WriteError(err)
}

// checkSpace fails with ErrDiskFull if the disk of dir has less than need bytes free.
func checkSpace(dir *files.Dir, need int64) error {
	f, err := dir.Open(".")
	if err != nil {
		return files.Classify(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Blocks == 0 {
		return nil // some network file systems do not report it
	}
	free := int64(min(st.Bavail, 1<<62/uint64(st.Bsize))) * int64(st.Bsize)
	if need > free {
		return fmt.Errorf("%w: %d more bytes are needed and %d are free", files.ErrDiskFull, need, free)
	}
	return nil
}

var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// put receives the bytes of r from body. Parts arrive side by side. Meanwhile the upload may be
// dropped or committed, by a sender that sent these bytes twice: then nothing more is written.
func (o *upload) put(r contract.Range, body io.Reader) error {
	f, err := o.openFor(r)
	if err != nil {
		return err
	}
	err = o.receive(f, r, body)
	if f != nil {
		// Some file systems report only here that they are full, and not which bytes they lost.
		if closeErr := f.Close(); closeErr != nil {
			return errors.Join(files.WriteError(closeErr), ErrNoUpload)
		}
	}
	return cmp.Or(err, o.received.Save())
}

// openFor opens the part file for the bytes of r; nil if all bytes of the upload have arrived.
func (o *upload) openFor(r contract.Range) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended:
		return nil, ErrNoUpload
	case r.Offset < 0 || r.Length < 0 || r.Length > o.spec.SizeBytes || r.Offset > o.spec.SizeBytes-r.Length:
		return nil, fmt.Errorf("%w: offset %d, length %d, size %d", files.ErrBadRange, r.Offset, r.Length, o.spec.SizeBytes)
	case len(o.received.Missing()) == 0:
		return nil, nil
	}
	dir, f, err := o.openPart(os.O_RDWR)
	if err != nil {
		return nil, err
	}
	dir.Close()
	return f, nil
}

// receive reads and writes the part r. It keeps what arrived before an error.
func (o *upload) receive(f *os.File, r contract.Range, body io.Reader) error {
	buf := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(buf)
	for r.Length > 0 {
		n, err := io.ReadFull(body, buf[:min(pieceBytes, r.Length)])
		if err := o.received.Write(f, r.Offset, buf[:n]); err != nil {
			return files.WriteError(err)
		}
		r = r.After(int64(n))
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d bytes of the part did not arrive", files.ErrBadRange, r.Length)
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

// commit verifies the file and gives it its name if all its bytes have arrived. If it is not
// verified after wait, the upload's status is hashing, and the next commit continues.
func (o *upload) commit(ctx context.Context, sum string, wait time.Duration) (contract.Upload, error) {
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if !o.committing.TryLock() {
		return o.answer(contract.UploadHashing), nil // for a request that was cut, and will notice that soon
	}
	defer o.committing.Unlock()
	if len(o.received.Missing()) > 0 {
		return o.answer(contract.UploadReceiving), nil
	}
	etag, err := o.place(within, sum)
	switch {
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return o.answer(contract.UploadHashing), nil
	case err != nil:
		return contract.Upload{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.received.End(nil)
	// The record is removed last: of an upload that a kill leaves without its part file, the next
	// executor knows nothing, and the sender finds the file.
	_ = os.Remove(o.path)
	out := o.answer(contract.UploadCommitted)
	out.ETag = etag
	return out, nil
}

// place verifies the part file and gives it its name. It returns the etag of the file.
func (o *upload) place(ctx context.Context, sum string) (etag string, err error) {
	o.mu.Lock()
	dir, f, err := o.openPart(os.O_RDONLY)
	o.mu.Unlock()
	if err != nil {
		return "", err
	}
	defer dir.Close()
	defer f.Close()
	if got, err := o.received.Sum(ctx, f, nil); err != nil || got != sum {
		return "", cmp.Or(err, ErrDigest)
	}
	return (&placement{record: o.record, part: o.part, dir: dir, file: f, sum: sum, digests: o.digests}).run(ctx)
}
