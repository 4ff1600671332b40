package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"colabrelay/shared/contract"
)

// maxOpens is how often a file that is replaced while it is being opened is tried.
const maxOpens = 3

// opened is a regular file open for reading, and what it was then.
type opened struct {
	*os.File
	Version
	real string // where it is, without links
}

// Stat is the file or folder at path, links followed, without its digest. What is
// neither is ErrNotRegular.
func (r *Roots) Stat(path string) (contract.FileStat, error) {
	out, o, err := r.stat(path)
	if o != nil {
		o.Close()
	}
	return out, err
}

// stat is Stat that leaves a file open; nil for a folder.
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
	out.SizeBytes, out.ETag, out.Modified = o.Size, o.ETag, o.Modified.UTC()
	return out, o, nil
}

// open opens the regular file at path.
func (r *Roots) open(path string) (*opened, error) {
	var err error
	for range maxOpens {
		var p place
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

func (p place) open() (*opened, error) {
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

// Read fills buf from offset on and returns how many bytes that were: fewer than
// len(buf) only at the end of the file. A non-empty etag must be the file's, and
// the file must be the same before and after, else ErrChanged.
func (r *Roots) Read(path, etag string, offset int64, buf []byte) (int, error) {
	f, err := r.open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.read(etag, offset, buf)
	if err != nil {
		return 0, fmt.Errorf("path %q: %w", path, err)
	}
	return n, nil
}

func (o *opened) read(etag string, offset int64, buf []byte) (int, error) {
	if etag != "" && etag != o.ETag {
		return 0, ErrChanged
	}
	if offset < 0 || offset > o.Size {
		return 0, fmt.Errorf("%w: offset %d of %d bytes", ErrBadRange, offset, o.Size)
	}
	n, err := o.ReadAt(buf[:min(int64(len(buf)), o.Size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return n, o.Unchanged(o.File)
}
