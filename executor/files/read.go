package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"colabrelay/shared/contract"
)

// maxOpens is how often open tries again if the file is replaced while it is opened.
const maxOpens = 3

// opened is a regular file open for reading, and its version at that time.
type opened struct {
	*os.File
	Version
	real string // where it is, without links
}

// Stat describes the file or folder at path, without its digest. It follows links, and
// fails with ErrNotRegular for anything else.
func (r *Roots) Stat(path string) (contract.FileStat, error) {
	out, o, err := r.stat(path)
	if o != nil {
		o.Close()
	}
	return out, err
}

// stat is Stat, and leaves a file open. The file is nil for a folder.
func (r *Roots) stat(path string) (contract.FileStat, *opened, error) {
	var out contract.FileStat
	shown, err := r.Absolute(path)
	if err != nil {
		return out, nil, err
	}
	out.Path, out.Name = contract.EscapeName(shown), contract.EscapeName(filepath.Base(shown))
	o, err := r.open(path)
	if errors.Is(err, ErrIsDir) {
		p, err := r.resolve(path)
		if err != nil {
			return out, nil, err
		}
		out.IsDir, out.Modified = p.info.IsDir(), p.info.ModTime().UTC()
		return out, nil, nil
	}
	if err != nil {
		return out, nil, err
	}
	out.SizeBytes, out.ETag, out.Modified, out.Executable = o.Size, o.ETag, o.Modified.UTC(), o.mode&0o100 != 0
	return out, o, nil
}

// MakeExecutable lets those execute the file at path who may read it, unless its owner may already.
// It returns the file's path and its new etag.
func (r *Roots) MakeExecutable(path string) (shown, etag string, err error) {
	o, err := r.open(path)
	if err != nil {
		return "", "", err
	}
	defer o.Close()
	if o.mode&0o100 == 0 {
		r.user.Do(func() { err = o.Chmod(o.mode | o.mode&0o444>>2) })
	}
	now, statErr := VersionOf(o.File)
	if err = errors.Join(err, statErr); err == nil && now.mode&0o100 == 0 { // as on Drive
		err = fmt.Errorf("%w: the file system keeps no such permission", ErrForbidden)
	}
	return contract.EscapeName(o.real), now.ETag, Classify(err)
}

// open opens the regular file at path.
func (r *Roots) open(path string) (*opened, error) {
	var err error
	for range maxOpens {
		var p location
		if p, err = r.resolve(path); err != nil {
			return nil, err
		}
		var o *opened
		if o, err = p.open(); err == nil {
			return o, nil
		}
		if !errors.Is(err, ErrChanged) {
			break
		}
	}
	return nil, fmt.Errorf("path %q: %w", path, err)
}

func (p location) open() (*opened, error) {
	f, err := p.openFile()
	if err != nil {
		return nil, err
	}
	v, err := VersionOf(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &opened{File: f, Version: v, real: p.path()}, nil
}
