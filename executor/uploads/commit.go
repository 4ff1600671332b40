package uploads

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

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
