package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

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

// ReadMany reads small files, each as a Part is read, and returns their bytes one after the
// other, and what each is. It reads at least one of paths, and stops when the bytes would exceed
// contract.MaxBatchRead or when it takes too long. A file that can't be read has an error, which
// explain returns, and no bytes, and does not affect the others.
func (r *Roots) ReadMany(ctx context.Context, paths []string, explain func(error) *contract.Error) ([]byte, []contract.Content, error) {
	if len(paths) > contract.MaxBatchFiles {
		return nil, nil, fmt.Errorf("reading files: %w: %d, at most %d", ErrTooMany, len(paths), contract.MaxBatchFiles)
	}
	var bytes []byte
	out := make([]contract.Content, 0, len(paths))
	end := time.Now().Add(manyFilesTime)
	for i, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if i > 0 && time.Now().After(end) {
			break
		}
		longer, one, err := r.readWhole(path, bytes)
		if err != nil {
			longer, one = bytes, contract.Content{Error: explain(err)}
		}
		if i > 0 && len(longer) > contract.MaxBatchRead {
			break
		}
		bytes, out = longer, append(out, one)
	}
	return bytes, out, nil
}

// readWhole appends the bytes of a file to before.
func (r *Roots) readWhole(path string, before []byte) ([]byte, contract.Content, error) {
	o, err := r.open(path)
	if err != nil {
		return nil, contract.Content{}, err
	}
	defer o.Close()
	if o.Size > contract.MaxBatchFile {
		return nil, contract.Content{}, fmt.Errorf("path %q: %w", path, ErrTooLarge)
	}
	longer := append(before, make([]byte, o.Size)...)
	_, err = io.ReadFull(&Part{file: o, path: path, end: o.Size}, longer[len(before):])
	return longer, contract.Content{SizeBytes: o.Size, ETag: o.ETag, Modified: o.Modified.UTC()}, err
}

// Part is a piece of one version of a file, read from its first byte to its last.
type Part struct {
	file    *opened
	path    string // as requested
	etag    string // of the version, since which the file may grow; empty if it may not
	at, end int64
}

// Part opens length bytes of the file at path from offset on, fewer at the end that the file
// had when its etag was etag. It fails with ErrChanged if the file changed since, other than by
// growing. The caller closes the part.
func (r *Roots) Part(path, etag string, offset, length int64) (*Part, error) {
	o, err := r.open(path)
	if err != nil {
		return nil, err
	}
	size, err := o.lengthAt(etag)
	p := &Part{file: o, path: path, etag: etag, at: offset, end: offset + min(length, size-offset)}
	switch {
	case err != nil:
	case offset < 0 || offset > size:
		err = fmt.Errorf("%w: offset %d, size %d", ErrBadRange, offset, size)
	default:
		return p, nil
	}
	o.Close()
	return nil, p.error(err)
}

// Length is how many bytes Read has not returned yet.
func (p *Part) Length() int64 { return p.end - p.at }

// Read implements io.Reader. If the file has changed since it was opened, the Read that
// would return the last byte fails with ErrChanged and returns none. So a part that was
// read to its end is of one version of the file, unless the file grew. The beginning of another
// part need not be.
func (p *Part) Read(b []byte) (int, error) {
	b = b[:min(int64(len(b)), p.Length())]
	if p.Length() == 0 {
		return 0, io.EOF
	}
	n, err := p.file.ReadAt(b, p.at)
	if err == io.EOF && n < len(b) {
		return 0, p.error(ErrChanged) // it is shorter now
	}
	if err != nil && err != io.EOF {
		return 0, p.error(err)
	}
	if p.at+int64(n) == p.end {
		if err := p.unchanged(); err != nil {
			return 0, p.error(err)
		}
	}
	p.at += int64(n)
	return n, nil
}

func (p *Part) unchanged() error {
	if p.etag == "" {
		return p.file.Unchanged(p.file.File)
	}
	now, err := VersionOf(p.file.File)
	if err == nil {
		_, err = now.lengthAt(p.etag)
	}
	return err
}

// Close closes the file.
func (p *Part) Close() error { return p.file.Close() }

func (p *Part) error(err error) error { return fmt.Errorf("path %q: %w", p.path, err) }
