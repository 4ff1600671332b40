package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"colabrelay/shared/contract"
)

// errGone means that the part is not there any more.
var errGone = errors.New("the part is gone")

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
	o.ended, o.hash = make(chan struct{}), &hash{total: o.asked.SizeBytes}
	select {
	case queue <- o: // it is the queue's from here on
		return nil
	default:
		o.status, o.ended = contract.UploadReceiving, nil
		return ErrBusy
	}
}

// await is the upload once it is not hashing, or after wait.
func (o *upload) await(ctx context.Context, wait time.Duration) (contract.Upload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ended := o.ended; ended != nil {
		o.mu.Unlock()
		await(ctx, ended, wait)
		o.mu.Lock()
	}
	if o.dropped {
		return contract.Upload{}, ErrNoUpload
	}
	if o.failure != nil {
		return contract.Upload{}, o.failure
	}
	return o.view(), nil
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
		o.committed(placed)
	case errors.Is(err, errGone):
		o.failure = o.begin()
	case !errors.Is(err, ErrDigest):
		o.failure = err
	case o.got.unproven():
		o.got.all = o.got.proven
		o.failure = writing(o.journal.rewrite(o.got))
	default:
		if o.failure = o.begin(); o.failure == nil {
			o.failure = err
		}
	}
}

// committed notes that the file is in its place. The lock is held. Where that
// can't be written, the next executor finds the file by its identity.
func (o *upload) committed(placed record) {
	o.record, o.status, o.got = placed, contract.UploadCommitted, received{}
	if o.journal.save(placed) == nil {
		o.journal.close()
		os.Remove(o.journal.path(rangesFile))
	}
}

// place hashes the part and gives it its name.
func (o *upload) place(ctx context.Context) (record, error) {
	dir, f, err := o.openPart(os.O_RDONLY)
	if errors.Is(err, ErrNotFound) {
		return record{}, errGone
	}
	if err != nil {
		return record{}, err
	}
	defer dir.Close()
	defer f.Close()
	sum, err := o.hash.sumOf(ctx, f)
	if err != nil {
		return record{}, err
	}
	if sum != o.asked.SHA256 {
		return record{}, ErrDigest
	}
	p := placing{upload: o, record: o.record, dir: dir, part: f}
	return p.run(ctx)
}

// placing is a whole part getting its name in dir.
type placing struct {
	*upload
	record record // with the name
	dir    *os.Root
	part   *os.File
}

func (p *placing) run(ctx context.Context) (record, error) {
	info, err := p.part.Stat()
	if err != nil {
		return p.record, err
	}
	p.record.Identity = identity(info)
	for n := range maxTaken {
		name := numbered(string(p.record.Name), n)
		done, err := p.try(ctx, name, info)
		if err != nil {
			return p.record, fmt.Errorf("%q: %w", filepath.Join(string(p.record.Folder), name), err)
		}
		if done {
			return p.named(name)
		}
	}
	return p.record, fmt.Errorf("%w: %d files of that name are there", ErrBadUpload, maxTaken)
}

// try puts the part at name; false when another file is there.
func (p *placing) try(ctx context.Context, name string, part fs.FileInfo) (bool, error) {
	there, err := p.dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.intend(name); err != nil {
			return false, err
		}
		if p.asked.Overwrite {
			return true, writing(p.dir.Rename(p.upload.part(), name))
		}
		return p.link(name)
	case err != nil:
		return false, classify(err)
	case os.SameFile(there, part): // killed between the link and the removal
		return true, writing(p.dir.Remove(p.upload.part()))
	case p.asked.Overwrite:
		return true, p.replace(name, there)
	}
	same, err := p.same(ctx, name, there)
	if err != nil || !same {
		return false, err
	}
	return true, writing(p.dir.Remove(p.upload.part()))
}

// intend notes under which name the file will be, before it is.
func (p *placing) intend(name string) error {
	p.record.Placing = []byte(name)
	return writing(p.journal.save(p.record))
}

// link gives the part its name unless that is taken, at once with its content. On
// filesystems without links an empty file takes the name first.
func (p *placing) link(name string) (bool, error) {
	err := p.dir.Link(p.upload.part(), name)
	if err == nil {
		return true, writing(p.dir.Remove(p.upload.part()))
	}
	if !errors.Is(err, fs.ErrExist) {
		var f *os.File
		if f, err = p.dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666); err == nil {
			f.Close()
			return true, writing(p.dir.Rename(p.upload.part(), name))
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil // since it was looked for
	}
	return false, writing(err)
}

// replace puts the part over a file and keeps that one's mode.
func (p *placing) replace(name string, there fs.FileInfo) error {
	if there.IsDir() {
		return ErrIsDir
	}
	if !there.Mode().IsRegular() {
		return ErrNotRegular
	}
	if err := p.intend(name); err != nil {
		return err
	}
	if err := p.part.Chmod(there.Mode().Perm()); err != nil {
		return writing(err)
	}
	return writing(p.dir.Rename(p.upload.part(), name))
}

// same reports whether the file there is what was uploaded.
func (p *placing) same(ctx context.Context, name string, there fs.FileInfo) (bool, error) {
	if !there.Mode().IsRegular() || there.Size() != p.asked.SizeBytes {
		return false, nil
	}
	f, err := openRegular(p.dir, name, os.O_RDONLY)
	if err != nil {
		return false, nil //nolint:nilerr // unreadable: another file, then
	}
	defer f.Close()
	var h hash
	sum, err := h.sumOf(ctx, f)
	if errors.Is(err, ErrChanged) {
		return false, nil
	}
	return sum == p.asked.SHA256, err
}

// named is the record of the file now that it has its name.
func (p *placing) named(name string) (record, error) {
	f, err := openRegular(p.dir, name, os.O_RDONLY)
	if err != nil {
		return p.record, err
	}
	defer f.Close()
	v, err := versionOf(f)
	p.record.Placing, p.record.ETag = []byte(name), v.etag
	return p.record, err
}

// openPlaced opens the file that was committed.
func (o *upload) openPlaced() (*os.File, error) {
	t, err := o.target()
	if err != nil {
		return nil, err
	}
	dir, err := t.folder.openDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openRegular(dir, string(o.record.Placing), os.O_RDONLY)
}

// wasPlaced reports whether a kill came between the file getting its name and the
// note of it: the part is gone, and the file is there under the name intended.
func (o *upload) wasPlaced() bool {
	if o.record.Identity == "" {
		return false
	}
	dir, part, err := o.openPart(os.O_RDONLY)
	if err == nil {
		part.Close()
		dir.Close()
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
	v, err := versionOf(f)
	o.record.ETag = v.etag
	return err == nil
}
