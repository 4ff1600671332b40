package uploads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// maxTaken is how many numbers are tried for a name that is taken.
const maxTaken = 999

// placement is a whole part getting its name in dir.
type placement struct {
	spec   contract.UploadStart
	part   string // its name in dir
	dir    *os.Root
	file   *os.File           // the part, open
	record record             // where the file goes; with the name, once it is placed
	note   func(record) error // keeps the record before the part gets its name
}

func (p *placement) run(ctx context.Context) (record, error) {
	info, err := p.file.Stat()
	if err != nil {
		return p.record, err
	}
	p.record.Identity = identity(info)
	for n := range maxTaken {
		name := files.Numbered(string(p.record.Name), n)
		done, err := p.try(ctx, name, info)
		if err != nil {
			return p.record, fmt.Errorf("%q: %w", filepath.Join(string(p.record.Folder), name), err)
		}
		if done {
			p.record.Placing = []byte(name)
			return p.record, p.seal()
		}
	}
	return p.record, fmt.Errorf("%w: %d files of that name are there", ErrBadUpload, maxTaken)
}

// try puts the part at name; false when another file is there.
func (p *placement) try(ctx context.Context, name string, part fs.FileInfo) (bool, error) {
	there, err := p.dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.intend(name); err != nil {
			return false, err
		}
		if p.spec.Overwrite {
			return true, files.WriteError(p.dir.Rename(p.part, name))
		}
		return p.link(name)
	case err != nil:
		return false, files.Classify(err)
	case os.SameFile(there, part): // the part could not be removed, the last time
		return true, files.WriteError(p.dir.Remove(p.part))
	case p.spec.Overwrite:
		return true, p.replace(name, there)
	}
	same, err := p.same(ctx, name, there)
	if err == nil && same {
		err = p.intend(name)
	}
	if err != nil || !same {
		return false, err
	}
	return true, files.WriteError(p.dir.Remove(p.part))
}

// intend notes under which name the file will be, before it is.
func (p *placement) intend(name string) error {
	p.record.Placing = []byte(name)
	return files.WriteError(p.note(p.record))
}

// link gives the part its name, unless that was taken since it was looked for.
func (p *placement) link(name string) (bool, error) {
	err := p.dir.Link(p.part, name)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return p.claim(name) // a filesystem without hard links, as Drive's
	}
	return true, files.WriteError(p.dir.Remove(p.part))
}

// claim is link without a link: an empty file takes the name, then the part its
// place. It comes second because a reader may see the empty file.
func (p *placement) claim(name string) (bool, error) {
	f, err := p.dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, files.WriteError(err)
	}
	f.Close()
	return true, files.WriteError(p.dir.Rename(p.part, name))
}

// replace puts the part over a file and keeps that one's mode.
func (p *placement) replace(name string, there fs.FileInfo) error {
	if there.IsDir() {
		return files.ErrIsDir
	}
	if !there.Mode().IsRegular() {
		return files.ErrNotRegular
	}
	if err := p.intend(name); err != nil {
		return err
	}
	_ = p.file.Chmod(there.Mode().Perm()) // refused where files have no modes, as on Drive
	return files.WriteError(p.dir.Rename(p.part, name))
}

// same reports whether the file there is what was uploaded. Then it is the one
// that counts as committed.
func (p *placement) same(ctx context.Context, name string, there fs.FileInfo) (bool, error) {
	if !there.Mode().IsRegular() || there.Size() != p.spec.SizeBytes {
		return false, nil
	}
	f, err := files.OpenRegular(p.dir, name, os.O_RDONLY)
	if err != nil {
		return false, nil // unreadable or gone: not that one
	}
	defer f.Close()
	h := files.NewHash(there.Size())
	sum, err := h.SumOf(ctx, f)
	if errors.Is(err, files.ErrChanged) || err == nil && sum != p.spec.SHA256 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v, err := files.VersionOf(f)
	p.record.ETag, p.record.Identity = v.ETag, identity(there)
	return true, err
}

// seal notes the etag of the part, now that its name is final.
func (p *placement) seal() error {
	if p.record.ETag != "" {
		return nil // that of the file that was there
	}
	v, err := files.VersionOf(p.file)
	p.record.ETag = v.ETag
	return err
}
