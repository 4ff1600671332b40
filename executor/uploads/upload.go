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

// upload is a file that is being received. Its part file and its journal are on disk; the
// fields mirror them.
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
	ended   chan struct{} // closed when hashing has ended
	failure error         // error of the last commit, until more bytes arrive
}

// uploadID is the same for equal starts, so that an upload can be resumed.
func uploadID(s contract.UploadStart) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %s %v", s.Path, s.SizeBytes, s.SHA256, s.Overwrite))
	return hex.EncodeToString(sum[:16])
}

func (o *upload) partName() string { return "." + o.id[:16] + files.PartSuffix }

func (o *upload) whole() span { return span{0, o.spec.SizeBytes} }

// answerLocked is the state of the upload for an answer.
func (o *upload) answerLocked() contract.Upload {
	out := contract.Upload{
		UploadID:      o.id,
		Status:        o.status,
		Path:          o.shownLocked(),
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

// shownLocked is the requested path, made absolute, or the path of the committed file.
func (o *upload) shownLocked() string {
	abs, err := o.roots.Absolute(o.spec.Path)
	switch {
	case err != nil:
		return o.spec.Path // checked when the upload was started
	case o.status != contract.UploadCommitted:
		return contract.EscapeName(abs)
	}
	return o.record.shown(abs)
}

// target is the target in the record. It fails if it is no longer in a root.
func (o *upload) target() (files.Target, error) {
	return o.roots.TargetIn(string(o.record.Folder), string(o.record.Name))
}

// start prepares the upload to receive bytes. Bytes received before are kept if the part
// file still exists.
func (o *upload) start() (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return contract.Upload{}, ErrNoUpload
	}
	if o.status == contract.UploadCommitted && !o.unchangedLocked() {
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
	if err := checkSpace(dir, o.spec.SizeBytes-o.got.all.bytes()); err != nil {
		return contract.Upload{}, err
	}
	return o.answerLocked(), nil
}

// unchangedLocked reports whether the committed file still exists and is unchanged.
func (o *upload) unchangedLocked() bool {
	f, err := o.openPlaced()
	if err != nil {
		return false
	}
	defer f.Close()
	v, err := files.VersionOf(f)
	return err == nil && v.ETag == o.record.ETag
}

// openLocked opens the part file and its folder. If they were deleted, the upload starts
// again from nothing.
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
		return nil, nil, files.ErrNotFound // it is a link now, and the path leads to another folder
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

// restartLocked creates the part file, with nothing received. It clears the journal first,
// so that the journal never lists bytes that a new part file does not contain.
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
	if err := checkSpace(dir, o.spec.SizeBytes); err != nil {
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
	return newPart(dir, o.partName(), func(f *os.File) error { return f.Truncate(o.spec.SizeBytes) })
}

// put writes the needed bytes of body.
func (o *upload) put(offset int64, body []byte, proven bool) (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := span{offset, offset + int64(len(body))}
	switch {
	case o.dropped:
		return contract.Upload{}, ErrNoUpload
	case offset < 0 || s.to < offset || s.to > o.spec.SizeBytes:
		return contract.Upload{}, fmt.Errorf("%w: %d bytes at offset %d, size %d", files.ErrBadRange, len(body), offset, o.spec.SizeBytes)
	case o.status != contract.UploadReceiving:
		return o.answerLocked(), nil // all bytes have arrived
	}
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return contract.Upload{}, err
	}
	defer dir.Close()
	o.failure = nil
	needed := o.got.needed(s, proven)
	if len(o.got.all)+len(o.got.proven)+2*len(needed) > maxPieces {
		f.Close()
		return contract.Upload{}, fmt.Errorf("%w: more than %d pieces", files.ErrBadRange, maxPieces/2)
	}
	if err := o.writeLocked(f, needed, body, s, proven); err != nil {
		return contract.Upload{}, err
	}
	return o.answerLocked(), nil
}

// writeLocked writes the needed ranges of body, which contains the bytes of s, to f and records
// them as received. It closes f, because some file systems report only then that they are
// full.
func (o *upload) writeLocked(f *os.File, needed ranges, body []byte, s span, proven bool) error {
	var written []span
	var err error
	for _, w := range needed {
		var n int
		n, err = f.WriteAt(body[w.from-s.from:w.to-s.from], w.from)
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
	return files.WriteError(err)
}

// wrap adds the path of the upload to err.
func (o *upload) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upload to %q: %w", o.spec.Path, err)
}

// state reports whether the upload is committed, or whether it is in work, so that nothing
// else is known about it.
func (o *upload) state() (done, busy bool) {
	if !o.mu.TryLock() {
		return false, true
	}
	defer o.mu.Unlock()
	return o.status == contract.UploadCommitted, o.status == contract.UploadHashing
}

// drop deletes the journal and the part file. A committed file is kept.
func (o *upload) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = true
	o.removePart()
	o.journal.remove()
}

// removePart deletes the part file if it can be opened. If its folder is missing, as on an
// unmounted Drive, the part file is kept there.
func (o *upload) removePart() {
	if dir, f, err := o.openPart(os.O_RDONLY); err == nil {
		f.Close()
		dir.Remove(o.partName())
		dir.Close()
	}
}
