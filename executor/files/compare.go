package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"colabrelay/shared/contract"
)

const (
	// compareFor is how long a comparison goes on before it answers what it has: files
	// on a mounted Drive are read over the network.
	compareFor = 5 * time.Second
	// maxSame is how many numbered names are looked at for the same file.
	maxSame = 20
)

// Compare says which files of m are there, of its first ones at least. A file whose
// etag still holds is not read.
func (d *Digests) Compare(ctx context.Context, m contract.Manifest) (contract.Comparison, error) {
	if len(m.Files) > contract.MaxManifestFiles {
		return contract.Comparison{}, fmt.Errorf("comparing: %w: %d files; %d are the most", ErrTooMany, len(m.Files), contract.MaxManifestFiles)
	}
	if _, err := d.roots.Absolute(m.Path); err != nil {
		return contract.Comparison{}, err
	}
	out := contract.Comparison{Files: make([]contract.Compared, 0, len(m.Files))}
	v := visit{roots: d.roots}
	defer v.leave()
	end := time.Now().Add(compareFor)
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

// compare is Compare of one file. What can't be looked at is absent: putting it there
// gives the reason.
func (d *Digests) compare(ctx context.Context, v *visit, m contract.Manifest, f contract.ManifestFile) contract.Compared {
	at := m.Path + "/" + f.Name
	for n := range maxSame {
		name := numberedPath(at, n)
		info, err := v.lstat(name)
		if err != nil {
			break
		}
		if info.Mode().IsRegular() && info.Size() == f.SizeBytes {
			if one := d.same(ctx, name, info, f); one.State != contract.StateAbsent {
				return one
			}
		}
		if m.Overwrite {
			break
		}
	}
	return contract.Compared{State: contract.StateAbsent}
}

// numberedPath is numbered of the last name of an escaped path.
func numberedPath(escaped string, n int) string {
	if n == 0 {
		return escaped
	}
	dir, name := path.Split(escaped)
	return dir + contract.EscapeName(Numbered(contract.UnescapeName(name), n))
}

// same says whether the file at name, which has f's size, is f.
func (d *Digests) same(ctx context.Context, name string, info fs.FileInfo, f contract.ManifestFile) contract.Compared {
	shown, err := d.roots.Absolute(name)
	if err != nil {
		return contract.Compared{State: contract.StateAbsent}
	}
	same := contract.Compared{State: contract.StateSame, Path: contract.EscapeName(shown), ETag: f.ETag}
	if f.ETag != "" && f.ETag == etagOf(info) {
		return same
	}
	if f.SHA256 == "" {
		return contract.Compared{State: contract.StateUnknown}
	}
	sum, tag, err := d.sumNow(ctx, name)
	switch {
	case err != nil:
		return contract.Compared{State: contract.StateUnknown}
	case sum != f.SHA256:
		return contract.Compared{State: contract.StateAbsent}
	}
	same.ETag = tag
	return same
}

// errHashing is a digest that is not known yet.
var errHashing = errors.New("being hashed")

// sumNow is the digest of a file and its etag. A big file's is known only once it was
// hashed in the background, which this begins.
func (d *Digests) sumNow(ctx context.Context, path string) (sum, etag string, err error) {
	o, err := d.roots.open(path)
	if err != nil {
		return "", "", err
	}
	defer o.Close()
	one, err := d.of(ctx, path, o)
	if err != nil {
		return "", "", err
	}
	select {
	case <-one.ended:
		return one.sum, o.ETag, one.err
	default:
		return "", "", errHashing
	}
}

// visit looks at many files, mostly of the same folder, which is opened once.
type visit struct {
	roots *Roots
	path  string // the folder, as asked for
	at    place
	dir   *os.Root // nil where err says why
	err   error
}

func (v *visit) leave() {
	if v.dir != nil {
		v.dir.Close()
		v.dir = nil
	}
}

// enter makes the folder at path, absolute and not escaped, the one that is visited.
func (v *visit) enter(path string) {
	if path == v.path {
		return
	}
	v.leave()
	v.path = path
	if v.at, v.err = v.roots.follow(path); v.err == nil {
		v.dir, v.err = v.at.openDir()
	}
}

// lstat is what the file at path is, links followed.
func (v *visit) lstat(path string) (fs.FileInfo, error) {
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
