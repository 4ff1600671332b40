package uploads

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// upload is a file that is being received. Its part file and its journal are on disk; the
// fields mirror them.
type upload struct {
	id      string // random
	spec    contract.UploadStart
	part    string // the part file's name
	roots   *files.Roots
	journal *journal
	work    chan<- *upload // of the store: uploads to be hashed

	mu      sync.Mutex
	record  record
	got     ranges.Set
	prefix  *prefixHash // of the part file; a new part file gets a new one
	status  contract.UploadStatus
	dropped bool
	queued  bool          // it is in work, or being hashed
	sum     string        // the digest of the commit, while hashing
	ended   chan struct{} // closed when hashing has ended
	failure error         // error of the last commit, until more bytes arrive
}

// partName is the same for equal starts: if the record of an upload is lost, its part file is
// replaced, not left.
func partName(s contract.UploadStart) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q %v%s%s", s.Path, s.SizeBytes, s.Version, s.Overwrite, s.Replaces, s.Source))
	return hiddenPart(hex.EncodeToString(sum[:]))
}

// hiddenPart is the name of the part file of an upload with a key of at least 16 characters.
func hiddenPart(key string) string { return "." + key[:16] + files.PartSuffix }

// answerLocked is the state of the upload for an answer.
func (o *upload) answerLocked() contract.Upload {
	missing := o.got.Missing(contract.Range{Length: o.spec.SizeBytes})
	out := contract.Upload{
		UploadID:      o.id,
		Status:        o.status,
		Path:          o.shownLocked(),
		SizeBytes:     o.spec.SizeBytes,
		ReceivedBytes: o.got.Total(),
		Missing:       missing[:min(len(missing), contract.MaxUploadRanges)],
	}
	switch o.status {
	case contract.UploadHashing:
		out.Hashing = o.prefix.Progress()
	case contract.UploadCommitted:
		out.ReceivedBytes, out.Missing = out.SizeBytes, []contract.Range{}
		out.SHA256, out.ETag = o.record.SHA256, o.record.ETag
	}
	return out
}

// shownLocked is the requested path, made absolute.
func (o *upload) shownLocked() string {
	abs, err := o.roots.Absolute(o.spec.Path)
	if err != nil {
		return o.spec.Path // checked when the upload was started
	}
	return contract.EscapeName(abs)
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
	if err := checkSpace(dir, o.spec.SizeBytes-o.got.Total()); err != nil {
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
func (o *upload) openLocked(flag int) (*files.Dir, *os.File, error) {
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

func (o *upload) openPart(flag int) (*files.Dir, *os.File, error) {
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
	f, err := openPart(dir, o.part, o.spec.SizeBytes, flag)
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
	o.got, o.prefix, o.status = nil, newPrefixHash(o.spec.SizeBytes), contract.UploadReceiving
	o.record = record{UploadStart: o.spec, Folder: []byte(t.Folder()), Name: []byte(t.Name), Linked: t.Linked}
	if err := o.journal.save(o.record); err != nil {
		return files.WriteError(err)
	}
	return newPart(dir, o.part, func(f *os.File) error { return f.Truncate(o.spec.SizeBytes) })
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

func (o *upload) statusNow() contract.UploadStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status
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
		dir.Remove(o.part)
		dir.Close()
	}
}

// A part file is the hidden file beside the target that an upload is received in. It is on
// the target's file system, so that one rename gives it its name. It has its full size from
// the start, with holes for missing bytes.

// openPart opens the part file of an upload of size bytes. ErrNotFound means that it was
// deleted or replaced, and that the upload has to start again.
func openPart(dir *files.Dir, name string, size int64, flag int) (*os.File, error) {
	f, err := files.OpenRegular(dir, name, flag)
	if errors.Is(err, files.ErrNotRegular) || errors.Is(err, files.ErrIsDir) || errors.Is(err, files.ErrChanged) {
		return nil, files.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && st.Size != size {
		err = files.ErrNotFound
	}
	// A file with a second name is not ours: never write to it.
	if err == nil && flag != os.O_RDONLY && st.Nlink != 1 {
		err = files.ErrNotFound
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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

// identity identifies a file under any name. Unlike the etag, it is not changed by a rename
// or a link, which change the ctime.
func identity(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x", st.Ino, info.Size(), info.ModTime().UnixNano())
}

// prefixHash is the SHA-256 of the first bytes of a part file. It follows the bytes that
// arrive, so that little is left to hash at the commit. It reads them back from the part
// file: parts arrive side by side, so most bytes can't be hashed when they arrive. They are
// still in the system's memory.
type prefixHash struct {
	*files.Hash
	of fs.FileInfo // the part file, once it was read
}

func newPrefixHash(size int64) *prefixHash { return &prefixHash{Hash: files.NewHash(size)} }

// read hashes f up to the offset to. It starts again if f is not the file that it read
// before. ErrChanged means that f is shorter.
func (h *prefixHash) read(ctx context.Context, f *os.File, to int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if h.of != nil && !os.SameFile(h.of, info) {
		h.Reset()
	}
	h.of = info
	return h.ReadTo(ctx, f, to)
}

// enqueueLocked has the upload hashed soon. It reports whether that will happen.
func (o *upload) enqueueLocked() bool {
	if o.queued {
		return true
	}
	select {
	case o.work <- o:
		o.queued = true
	default: // dropped uploads may still fill the queue
	}
	return o.queued
}

// follow hashes what has arrived in order since the last time, and commits the upload if
// that was requested. It is called by one goroutine at a time.
func (o *upload) follow(ctx context.Context) {
	if f, prefix, to := o.unhashed(); f != nil {
		_ = prefix.read(ctx, f, to) // the commit reads on from there, and reports an error
		f.Close()
	}
	o.mu.Lock()
	committing := o.status == contract.UploadHashing
	o.queued = committing
	o.mu.Unlock()
	if committing {
		o.finish(ctx)
	}
}

// unhashed opens the part file for follow. The file is nil if there is nothing to do.
func (o *upload) unhashed() (*os.File, *prefixHash, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped || o.status != contract.UploadReceiving {
		return nil, nil, 0
	}
	dir, f, err := o.openPart(os.O_RDONLY)
	if err != nil {
		return nil, nil, 0
	}
	dir.Close()
	return f, o.prefix, o.got.Prefix()
}
