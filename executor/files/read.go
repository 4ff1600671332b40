package files

import (
	"errors"
	"fmt"
	"io"
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
	out.SizeBytes, out.ETag, out.Modified = o.Size, o.ETag, o.Modified.UTC()
	return out, o, nil
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

// Read reads into buf from offset and returns the number of bytes, which is less than
// len(buf) only at the end of the file. It fails with ErrChanged if etag is not empty and
// not the etag of the file, or if the file changes while it is read.
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
		return 0, fmt.Errorf("%w: offset %d, size %d", ErrBadRange, offset, o.Size)
	}
	n, err := o.ReadAt(buf[:min(int64(len(buf)), o.Size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return n, o.Unchanged(o.File)
}
