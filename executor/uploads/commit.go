package uploads

import (
	"context"
	"errors"
	"os"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// errPartMissing means that the part file was deleted.
var errPartMissing = errors.New("the part file was deleted")

// commit puts the upload into queue to be verified if all its bytes have arrived. The error
// of the last commit is returned until more bytes arrive.
func (o *upload) commit(queue chan<- *upload) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped:
		return ErrNoUpload
	case o.status != contract.UploadReceiving:
		return nil
	case len(o.got.all.missing(o.whole())) > 0:
		return o.failure
	}
	o.failure, o.status = nil, contract.UploadHashing
	o.ended, o.hash = make(chan struct{}), files.NewHash(o.spec.SizeBytes)
	select {
	case queue <- o: // from here on the upload is in work
		return nil
	default:
		o.status, o.ended = contract.UploadReceiving, nil
		return files.ErrBusy
	}
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
	o.status = contract.UploadReceiving
	switch {
	case o.dropped:
	case err == nil:
		o.recordCommitLocked(placed)
	case errors.Is(err, errPartMissing):
		o.failure = o.restartLocked()
	case !errors.Is(err, ErrDigest):
		o.failure = err
	case o.got.all.bytes() != o.got.proven.bytes(): // some bytes are unproven
		o.got.all = o.got.proven
		o.failure = files.WriteError(o.journal.rewrite(o.got))
	default:
		if o.failure = o.restartLocked(); o.failure == nil {
			o.failure = err
		}
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
	o.record, o.status, o.got = placed, contract.UploadCommitted, received{}
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
	sum, err := o.hash.SumOf(ctx, f)
	if err != nil {
		return record{}, err
	}
	if sum != o.spec.SHA256 {
		return record{}, ErrDigest
	}
	p := placement{spec: o.spec, part: o.partName(), dir: dir, file: f, record: o.record, save: o.journal.save}
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
