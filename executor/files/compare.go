package files

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"colabrelay/shared/contract"
)

const (
	// manyFilesTime is how long a request about many files takes before it returns a
	// partial answer: files on a mounted Drive are read over the network.
	manyFilesTime = 5 * time.Second
)

// Compare reports which of the first files of m exist, at least of one. Files whose etag
// is unchanged are not read.
func (d *Digests) Compare(ctx context.Context, m contract.Manifest) (contract.Comparison, error) {
	if len(m.Files) > contract.MaxManifestFiles {
		return contract.Comparison{}, fmt.Errorf("comparing files: %w: %d, at most %d", ErrTooMany, len(m.Files), contract.MaxManifestFiles)
	}
	if _, err := d.roots.Absolute(m.Path); err != nil {
		return contract.Comparison{}, err
	}
	out := contract.Comparison{Files: make([]contract.Compared, 0, len(m.Files))}
	v := inspector{roots: d.roots}
	defer v.close()
	end := time.Now().Add(manyFilesTime)
	for i, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return contract.Comparison{}, err
		}
		if i > 0 && time.Now().After(end) {
			break
		}
		out.Files = append(out.Files, d.compare(ctx, &v, m, f))
	}
	return out, nil
}

// compare is Compare for one file. A file that can't be inspected is absent: an upload of it
// will report the reason.
func (d *Digests) compare(ctx context.Context, v *inspector, m contract.Manifest, f contract.ManifestFile) contract.Compared {
	name := m.Path + "/" + f.Name
	info, err := v.lstat(name)
	if err != nil {
		return contract.Compared{State: contract.StateAbsent}
	}
	taken := contract.Compared{State: contract.StateTaken}
	if f.Replaces == "" {
		taken.State = contract.StateAbsent
	}
	if !info.Mode().IsRegular() {
		return taken
	}
	if info.Size() == f.SizeBytes {
		if one := d.same(ctx, name, info, f); one.State != contract.StateAbsent {
			return one
		}
	}
	if f.Replaces == "" || f.Replaces == contract.ReplaceNothing {
		return taken
	}
	switch sum, _, err := d.sumIfReady(ctx, name); {
	case err != nil:
		return contract.Compared{State: contract.StateUnknown}
	case sum != f.Replaces:
		return taken
	}
	if t, err := d.roots.Target(name); err != nil || t.Linked {
		return taken
	}
	return contract.Compared{State: contract.StateAbsent}
}

// same compares the file at name, which has the size of f, with f.
func (d *Digests) same(ctx context.Context, name string, info fs.FileInfo, f contract.ManifestFile) contract.Compared {
	shown, err := d.roots.Absolute(name)
	if err != nil {
		return contract.Compared{State: contract.StateAbsent}
	}
	same := contract.Compared{State: contract.StateSame, Path: contract.EscapeName(shown), ETag: f.ETag}
	if f.ETag != "" && f.ETag == ETagOf(info) {
		return same
	}
	sum, tag, err := d.sumIfReady(ctx, name)
	switch {
	case err != nil:
		return contract.Compared{State: contract.StateUnknown}
	case f.SHA256 == "":
		return contract.Compared{State: contract.StateUnknown, SHA256: sum}
	case sum != f.SHA256:
		return contract.Compared{State: contract.StateAbsent}
	}
	same.ETag = tag
	return same
}

// sumIfReady is the digest of a file, and its etag. It fails with errHashing for a large file
// that nobody has had hashed.
func (d *Digests) sumIfReady(ctx context.Context, path string) (sum, etag string, err error) {
	o, err := d.roots.open(path)
	if err != nil {
		return "", "", err
	}
	defer o.Close()
	sum, _, err = d.sum(ctx, o, o.source(), 0)
	return sum, o.ETag, err
}

// inspector inspects many files. It opens a folder once for all consecutive files in it.
type inspector struct {
	roots *Roots
	path  string // the folder, as requested
	at    location
	dir   *Dir // nil if err is set
	err   error
}

func (v *inspector) close() {
	if v.dir != nil {
		v.dir.Close()
		v.dir = nil
	}
}

// enter opens the folder at path, which is absolute and not escaped.
func (v *inspector) enter(path string) {
	if path == v.path {
		return
	}
	v.close()
	v.path = path
	if v.at, v.err = v.roots.follow(path); v.err == nil {
		v.dir, v.err = v.at.openDir()
	}
}

// lstat describes the file at path. It follows links.
func (v *inspector) lstat(path string) (fs.FileInfo, error) {
	abs, err := v.roots.Absolute(path)
	if err != nil {
		return nil, err
	}
	dir, name := filepath.Split(abs)
	v.enter(filepath.Clean(dir))
	if v.err != nil {
		return nil, v.err
	}
	if IsPart(name) || within(v.roots.state, filepath.Join(v.at.path(), name)) {
		return nil, ErrForbidden
	}
	info, err := v.dir.Lstat(name)
	if err != nil {
		return nil, Classify(err)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return info, nil
	}
	p, err := v.roots.follow(abs)
	return p.info, err
}
