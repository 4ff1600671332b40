package uploads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// placement gives a complete part file its name in dir.
type placement struct {
	part   string // the part file's name in dir
	dir    *files.Dir
	file   *os.File           // the open part file
	record record             // the target and the digest; run adds the final name and the etag
	save   func(record) error // stores the record before the part file gets its name
}

func (p *placement) run(ctx context.Context) (record, error) {
	info, err := p.file.Stat()
	if err != nil {
		return p.record, err
	}
	p.record.Identity = identity(info)
	name, path := string(p.record.Name), filepath.Join(string(p.record.Folder), string(p.record.Name))
	switch done, err := p.try(ctx, name, info); {
	case err != nil:
		return p.record, fmt.Errorf("%q: %w", path, err)
	case done:
		p.record.Placing = []byte(name)
		return p.record, p.setETag()
	case p.record.Linked && p.mayReplace():
		return p.record, fmt.Errorf("%q: %w, because a link is in the path", path, ErrTaken)
	}
	return p.record, fmt.Errorf("%q: %w", path, ErrTaken)
}

// mayReplace reports whether the upload names a file that it may replace.
func (p *placement) mayReplace() bool {
	return p.record.Replaces != "" && p.record.Replaces != contract.ReplaceNothing
}

// try gives the part file a name. It returns false if another file has that name.
func (p *placement) try(ctx context.Context, name string, part fs.FileInfo) (bool, error) {
	existing, err := p.dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.saveName(name); err != nil {
			return false, err
		}
		if p.record.Overwrite {
			return true, files.WriteError(p.dir.Rename(p.part, name))
		}
		return p.link(name)
	case err != nil:
		return false, files.Classify(err)
	case os.SameFile(existing, part): // the part file could not be deleted the last time
		return true, files.WriteError(p.dir.Remove(p.part))
	case p.record.Overwrite:
		return true, p.replace(name, existing)
	}
	there, err := p.inspect(ctx, name, existing)
	if err == nil && !p.record.Linked && there.sum != "" && there.sum == p.record.Replaces && there.sum != p.record.SHA256 {
		return p.replaceUnchanged(name, there)
	}
	if err != nil || there.sum != p.record.SHA256 {
		return false, err
	}
	p.adopt(there)
	if err := p.saveName(name); err != nil {
		return false, err
	}
	return true, files.WriteError(p.dir.Remove(p.part))
}

// replaceUnchanged replaces a file that the upload may replace. It returns false if the file
// changed since it was hashed. Nothing is read or saved between this look and the rename, so
// only a change within these microseconds can be lost.
func (p *placement) replaceUnchanged(name string, hashed inspected) (bool, error) {
	if err := p.saveName(name); err != nil {
		return false, err
	}
	now, err := p.dir.Lstat(name)
	if err != nil || files.ETagOf(now) != hashed.etag {
		return false, nil
	}
	_ = p.file.Chmod(now.Mode().Perm())
	return true, files.WriteError(p.dir.Rename(p.part, name))
}

// saveName saves the name that the file is about to get.
func (p *placement) saveName(name string) error {
	p.record.Placing = []byte(name)
	return files.WriteError(p.save(p.record))
}

// link gives the part file its name, unless another file has taken the name since it was
// checked.
func (p *placement) link(name string) (bool, error) {
	err := p.dir.Link(p.part, name)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return p.claim(name) // a file system without hard links, such as Drive's
	}
	return true, files.WriteError(p.dir.Remove(p.part))
}

// claim is link for file systems without hard links: it creates an empty file with the
// name, which the part file then replaces. It is the second choice because a reader may see
// the empty file.
func (p *placement) claim(name string) (bool, error) {
	f, err := p.dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, files.WriteError(err)
	}
	f.Close()
	if err := p.dir.Rename(p.part, name); err != nil {
		_ = p.dir.Remove(name)
		return false, files.WriteError(err)
	}
	return true, nil
}

// replace replaces a file with the part file, which gets the mode of the old file.
func (p *placement) replace(name string, existing fs.FileInfo) error {
	if existing.IsDir() {
		return files.ErrIsDir
	}
	if !existing.Mode().IsRegular() {
		return files.ErrNotRegular
	}
	if err := p.saveName(name); err != nil {
		return err
	}
	_ = p.file.Chmod(existing.Mode().Perm()) // fails on file systems without modes, such as Drive
	return files.WriteError(p.dir.Rename(p.part, name))
}

// inspected is an existing file; without a digest if it cannot be what the upload is
// compared with.
type inspected struct {
	sum, etag string
	info      fs.FileInfo
}

// inspect hashes an existing file if it may have the uploaded content, or be the one that
// the upload replaces.
func (p *placement) inspect(ctx context.Context, name string, existing fs.FileInfo) (inspected, error) {
	if !existing.Mode().IsRegular() || existing.Size() != p.record.SizeBytes && !p.mayReplace() {
		return inspected{}, nil
	}
	f, err := files.OpenRegular(p.dir, name, os.O_RDONLY)
	if err != nil {
		return inspected{}, nil // it can't be read or was deleted, so it does not count
	}
	defer f.Close()
	sum, err := files.NewHash(existing.Size()).SumOf(ctx, f)
	if errors.Is(err, files.ErrChanged) {
		return inspected{}, nil
	}
	if err != nil {
		return inspected{}, err
	}
	v, err := files.VersionOf(f)
	return inspected{sum: sum, etag: v.ETag, info: existing}, err
}

// same reports whether an existing file has the uploaded content. If so, that file counts as
// committed.
func (p *placement) same(ctx context.Context, name string, existing fs.FileInfo) (bool, error) {
	if existing.Size() != p.record.SizeBytes {
		return false, nil
	}
	there, err := p.inspect(ctx, name, existing)
	if err != nil || there.sum != p.record.SHA256 {
		return false, err
	}
	p.adopt(there)
	return true, nil
}

// adopt records that an existing file counts as committed.
func (p *placement) adopt(there inspected) {
	p.record.ETag, p.record.Identity = there.etag, identity(there.info)
}

// setETag records the etag of the part file, now that its name is final.
func (p *placement) setETag() error {
	if p.record.ETag != "" {
		return nil // same has set that of the existing file
	}
	v, err := files.VersionOf(p.file)
	p.record.ETag = v.ETag
	return err
}

// errPartMissing means that the part file was deleted.
var errPartMissing = errors.New("the part file was deleted")

// commit has the upload verified and placed if all its bytes have arrived. The error of the
// last commit is returned until more bytes arrive.
func (o *upload) commit(sum string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped:
		return ErrNoUpload
	case o.status == contract.UploadCommitted && o.record.SHA256 != sum: // the sender's version is wrong
		o.failure = cmp.Or(o.restartLocked(), ErrDigest)
		return o.failure
	case o.status == contract.UploadHashing && o.sum != sum:
		return files.ErrBusy // another sender has the same version of another file
	case o.status != contract.UploadReceiving:
		return nil
	case o.got.Total() < o.spec.SizeBytes:
		return o.failure
	}
	if !o.enqueueLocked() {
		return files.ErrBusy
	}
	o.failure, o.status, o.sum, o.ended = nil, contract.UploadHashing, sum, make(chan struct{})
	return nil
}

// await waits until the upload is not being hashed, at most for wait, and returns its state.
func (o *upload) await(ctx context.Context, wait time.Duration) (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ended := o.ended; ended != nil {
		o.mu.Unlock()
		files.Await(ctx, ended, wait)
		o.mu.Lock()
	}
	if o.dropped {
		return contract.Upload{}, ErrNoUpload
	}
	if o.failure != nil {
		return contract.Upload{}, o.failure
	}
	return o.answerLocked(), nil
}

// finish verifies the file and gives it its name. While the status is hashing, nothing else
// uses the part file and the record.
func (o *upload) finish(ctx context.Context) {
	placed, err := o.place(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	defer close(o.ended)
	o.status, o.queued = contract.UploadReceiving, false
	switch {
	case o.dropped:
	case err == nil:
		o.recordCommitLocked(placed)
	case errors.Is(err, errPartMissing):
		o.failure = o.restartLocked()
	case errors.Is(err, ErrDigest):
		o.failure = cmp.Or(o.restartLocked(), err)
	default:
		o.failure = err
	}
}

// recordCommitLocked records that the file is committed. If the journal can't be written,
// the next executor recognises the file by its identity.
func (o *upload) recordCommitLocked(placed record) {
	o.markCommittedLocked(placed)
	if o.journal.save(placed) == nil {
		_ = o.journal.clear() // an error does no harm: the ranges are not read again
	}
}

// markCommittedLocked marks the upload as committed. If the executor was killed after it
// had found the same content in an existing file, the part file still exists.
func (o *upload) markCommittedLocked(placed record) {
	o.record, o.status, o.got = placed, contract.UploadCommitted, nil
	o.removePart()
}

// place verifies the part file and gives it its name.
func (o *upload) place(ctx context.Context) (record, error) {
	dir, f, err := o.openPart(os.O_RDONLY)
	if errors.Is(err, files.ErrNotFound) {
		return record{}, errPartMissing
	}
	if err != nil {
		return record{}, err
	}
	defer dir.Close()
	defer f.Close()
	if err := o.prefix.read(ctx, f, o.spec.SizeBytes); err != nil {
		return record{}, err
	}
	if o.prefix.Sum() != o.sum {
		return record{}, ErrDigest
	}
	p := placement{part: o.part, dir: dir, file: f, record: o.record, save: o.journal.save}
	p.record.SHA256 = o.sum
	return p.run(ctx)
}

// openPlaced opens the committed file.
func (o *upload) openPlaced() (*os.File, error) {
	t, err := o.target()
	if err != nil {
		return nil, err
	}
	dir, err := t.OpenFolder()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return files.OpenRegular(dir, string(o.record.Placing), os.O_RDONLY)
}

// wasPlaced reports whether the file got its name before the executor was killed, and only
// the record of that is missing: the file with the intended name has the identity of the
// part file.
func (o *upload) wasPlaced() bool {
	if o.record.Identity == "" {
		return false
	}
	f, err := o.openPlaced()
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || identity(info) != o.record.Identity {
		return false
	}
	o.removePart() // before the etag is computed, because removing a second name changes the ctime
	v, err := files.VersionOf(f)
	o.record.ETag = v.ETag
	return err == nil
}
