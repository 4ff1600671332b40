package files

import (
	"fmt"
	"io"
)

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
