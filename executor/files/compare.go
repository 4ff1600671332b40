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
	shown, err := d.roots.Absolute(name)
	if err != nil {
		return contract.Compared{State: contract.StateAbsent}
	}
	info, err := v.lstat(shown)
	if err != nil {
		return contract.Compared{State: contract.StateAbsent}
	}
	same := contract.Compared{State: contract.StateSame, Path: contract.EscapeName(shown), ETag: ETagOf(info)}
	replaces := f.Replaces != "" && f.Replaces != contract.ReplaceNothing
	alike := info.Mode().IsRegular() && info.Size() == f.SizeBytes
	if alike && f.ETag == same.ETag {
		return same
	}
	sum := ""
	if alike || replaces && info.Mode().IsRegular() {
		if sum, same.ETag, err = d.sumIfReady(ctx, name); err != nil {
			return contract.Compared{State: contract.StateUnknown}
		}
	}
	switch {
	case alike && f.SHA256 == "":
		return contract.Compared{State: contract.StateUnknown, SHA256: sum}
	case alike && sum == f.SHA256:
		return same
	case f.Replaces == "":
		return contract.Compared{State: contract.StateAbsent}
	case replaces && sum == f.Replaces:
		if t, err := d.roots.Target(name); err == nil && !t.Linked {
			return contract.Compared{State: contract.StateAbsent}
		}
	}
	return contract.Compared{State: contract.StateTaken}
}

// sumIfReady is the digest of a file, and its etag. It fails with errHashing for a large file
// that nobody has had hashed.
func (d *Digests) sumIfReady(ctx context.Context, path string) (sum, etag string, err error) {
	o, err := d.roots.open(path)
	if err != nil {
		return "", "", err
	}
	defer o.Close()
	sum, err = d.sum(ctx, o, o.source(), 0)
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

// lstat describes the file at a path that is absolute and not escaped. It follows links.
func (v *inspector) lstat(abs string) (fs.FileInfo, error) {
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
