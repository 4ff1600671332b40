package uploads

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// upload is one file on its way in. Its part and its journal are on disk; here is
// what they say.
type upload struct {
	id      string
	spec    contract.UploadStart
	roots   *files.Roots
	journal *journal

	mu      sync.Mutex
	record  record
	got     received
	status  contract.UploadStatus
	dropped bool
	hash    *files.Hash   // while hashing
	ended   chan struct{} // closed when hashing ended
	failure error         // what the last commit ended with, until bytes come again
}

// uploadID is the same for the same start, which is how one is resumed.
func uploadID(s contract.UploadStart) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %s %v", s.Path, s.SizeBytes, s.SHA256, s.Overwrite))
	return hex.EncodeToString(sum[:16])
}

func (o *upload) partName() string { return "." + o.id[:16] + files.PartSuffix }

func (o *upload) whole() span { return span{0, o.spec.SizeBytes} }

// view is the upload as it is answered. The lock is held.
func (o *upload) answerLocked() contract.Upload {
	out := contract.Upload{
		UploadID:      o.id,
		Status:        o.status,
		Path:          o.shown(),
		SizeBytes:     o.spec.SizeBytes,
		SHA256:        o.spec.SHA256,
		ReceivedBytes: o.got.all.bytes(),
		Missing:       o.got.all.missing(o.whole()).answer(contract.MaxUploadRanges),
	}
	switch o.status {
	case contract.UploadHashing:
		out.Hashing = o.hash.Progress()
	case contract.UploadCommitted:
		out.ReceivedBytes, out.Missing, out.ETag = out.SizeBytes, []contract.Range{}, o.record.ETag
	}
	return out
}

// shown is the path asked for, made absolute; once committed where the file is.
func (o *upload) shown() string {
	abs, err := o.roots.Absolute(o.spec.Path)
	switch {
	case err != nil:
		return o.spec.Path // checked when it began
	case o.status != contract.UploadCommitted:
		return contract.EscapeName(abs)
	}
	return o.record.shown(abs)
}

// target is where the record says that the file goes; the roots may have changed.
func (o *upload) target() (files.Target, error) {
	return o.roots.TargetIn(string(o.record.Folder), string(o.record.Name))
}

// start makes the upload ready for bytes: what it received stays when the part is
// still there; else it begins anew.
func (o *upload) start() (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return contract.Upload{}, ErrNoUpload
	}
	if o.status == contract.UploadCommitted && !o.inPlace() {
		if err := o.restartLocked(); err != nil {
			return contract.Upload{}, err
		}
		o.status = contract.UploadReceiving
	}
	o.journal.touch()
	if o.status != contract.UploadReceiving {
		return o.answerLocked(), nil
	}
	o.failure = nil
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return contract.Upload{}, err
	}
	defer dir.Close()
	defer f.Close()
	if err := room(dir, o.spec.SizeBytes-o.got.all.bytes()); err != nil {
		return contract.Upload{}, err
	}
	return o.answerLocked(), nil
}

// inPlace reports whether the committed file still is what it was.
func (o *upload) inPlace() bool {
	f, err := o.openPlaced()
	if err != nil {
		return false
	}
	defer f.Close()
	v, err := files.VersionOf(f)
	return err == nil && v.ETag == o.record.ETag
}

// open opens the part and the folder it is in; the upload begins anew when they
// are gone. The lock is held.
func (o *upload) openLocked(flag int) (*os.Root, *os.File, error) {
	for range 2 {
		dir, f, err := o.openPart(flag)
		if !errors.Is(err, files.ErrNotFound) {
			return dir, f, err
		}
		if err := o.restartLocked(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, files.ErrChanged
}

func (o *upload) openPart(flag int) (*os.Root, *os.File, error) {
	if o.record.Folder == nil {
		return nil, nil, files.ErrNotFound
	}
	t, err := o.target()
	if err != nil {
		return nil, nil, err
	}
	dir, err := t.OpenFolder()
	if errors.Is(err, files.ErrChanged) {
		return nil, nil, files.ErrNotFound // a link now: the path means another folder
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := openPart(dir, o.partName(), o.spec.SizeBytes, flag)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, f, nil
}

// begin makes the part, with nothing received. The journal is emptied before, so
// that it never tells of bytes that a new part does not hold.
func (o *upload) restartLocked() error {
	t, err := o.roots.Target(o.spec.Path)
	if err != nil {
		return err
	}
	dir, err := t.OpenOrMake()
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := room(dir, o.spec.SizeBytes); err != nil {
		return err
	}
	if err := o.journal.clear(); err != nil {
		return files.WriteError(err)
	}
	o.got = received{}
	o.record = record{UploadStart: o.spec, Folder: []byte(t.Folder()), Name: []byte(t.Name)}
	if err := o.journal.save(o.record); err != nil {
		return files.WriteError(err)
	}
	return makePart(dir, o.partName(), o.spec.SizeBytes)
}

// put writes what of body is worth it.
func (o *upload) put(offset int64, body []byte, proven bool) (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := span{offset, offset + int64(len(body))}
	switch {
	case o.dropped:
		return contract.Upload{}, ErrNoUpload
	case offset < 0 || s.to < offset || s.to > o.spec.SizeBytes:
		return contract.Upload{}, fmt.Errorf("%w: %d bytes at %d of %d", files.ErrBadRange, len(body), offset, o.spec.SizeBytes)
	case o.status != contract.UploadReceiving:
		return o.answerLocked(), nil // all is there
	}
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return contract.Upload{}, err
	}
	defer dir.Close()
	o.failure = nil
	wanted := o.got.wanted(s, proven)
	if len(o.got.all)+len(o.got.proven)+2*len(wanted) > maxPieces {
		f.Close()
		return contract.Upload{}, fmt.Errorf("%w: in more than %d pieces", files.ErrBadRange, maxPieces/2)
	}
	if err := o.write(f, wanted, body, s, proven); err != nil {
		return contract.Upload{}, err
	}
	return o.answerLocked(), nil
}

// write puts the wanted spans of body, which is the bytes of s, into f and counts
// what got there. It closes f: some filesystems tell only then that they are full.
func (o *upload) write(f *os.File, wanted ranges, body []byte, s span, proven bool) error {
	var written []span
	var err error
	for _, w := range wanted {
		var n int
		n, err = writeAt(f, body[w.from-s.from:w.to-s.from], w.from)
		if n > 0 {
			written = append(written, span{w.from, w.from + int64(n)})
		}
		if err != nil {
			break
		}
	}
	if closeErr := f.Close(); closeErr != nil {
		return files.WriteError(closeErr)
	}
	if err := o.journal.restoreIfDeleted(o.record, o.got); err != nil {
		return files.WriteError(err)
	}
	for _, w := range written {
		if err := o.journal.append(o.got, w, proven); err != nil {
			return files.WriteError(err)
		}
		o.got = o.got.add(w, proven)
	}
	return err
}

// explain says which upload err is about.
func (o *upload) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upload to %q: %w", o.spec.Path, err)
}

// standing is whether the file is in its place, and whether the upload is being
// worked on at this moment, when that can't be told.
func (o *upload) state() (done, busy bool) {
	if !o.mu.TryLock() {
		return false, true
	}
	defer o.mu.Unlock()
	return o.status == contract.UploadCommitted, o.status == contract.UploadHashing
}

// drop removes the upload from the disk. A file that is in its place stays.
func (o *upload) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = true
	o.removePart()
	o.journal.remove()
}

// removePart removes the part where it still is; one in a folder that is gone, as
// an unmounted Drive, stays there.
func (o *upload) removePart() {
	if dir, f, err := o.openPart(os.O_RDONLY); err == nil {
		f.Close()
		dir.Remove(o.partName())
		dir.Close()
	}
}
