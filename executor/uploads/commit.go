package uploads

import (
	"context"
	"errors"
	"os"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// errPartMissing means that the part is not there any more.
var errPartMissing = errors.New("the part is gone")

// commit has the whole checked by queue when all of it is there. What the last
// commit failed with is told until bytes come again.
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
	case queue <- o: // it is the queue's from here on
		return nil
	default:
		o.status, o.ended = contract.UploadReceiving, nil
		return files.ErrBusy
	}
}

// await is the upload once it is not hashing, or after wait.
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

// finish checks the whole and puts it in its place. Nothing else touches the part
// and the record while the status is hashing.
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
	case o.got.unproven():
		o.got.all = o.got.proven
		o.failure = files.WriteError(o.journal.rewrite(o.got))
	default:
		if o.failure = o.restartLocked(); o.failure == nil {
			o.failure = err
		}
	}
}

// committed notes that the file is in its place. The lock is held. Where that
// can't be written, the next executor finds the file by its identity.
func (o *upload) recordCommitLocked(placed record) {
	o.markCommittedLocked(placed)
	if o.journal.save(placed) == nil {
		_ = o.journal.clear() // what is left of it is not read again
	}
}

// settle takes the upload for committed. After a kill the part may be there still,
// where the same content was found in place.
func (o *upload) markCommittedLocked(placed record) {
	o.record, o.status, o.got = placed, contract.UploadCommitted, received{}
	o.removePart()
}

// place hashes the part and gives it its name.
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
	p := placement{spec: o.spec, part: o.partName(), dir: dir, file: f, record: o.record, note: o.journal.save}
	return p.run(ctx)
}

// openPlaced opens the file that was committed.
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

// wasPlaced reports whether a kill came between the file getting its name and the
// note of it: what is there under the name intended is what the part was.
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
	o.removePart() // before the etag is taken: removing a second name changes the ctime
	v, err := files.VersionOf(f)
	o.record.ETag = v.ETag
	return err == nil
}
