package files

import (
	"context"
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// Whole is one file of many that were read at once.
type Whole struct {
	Size     int64
	ETag     string
	Modified time.Time
	Err      error
}

// ReadMany reads whole small files, one after the other, until all together would pass
// contract.MaxBatchRead or that took long: the first of paths, at least one. Each is
// read as Read does it, and fails alone, without any bytes.
func (r *Roots) ReadMany(ctx context.Context, paths []string) ([]byte, []Whole, error) {
	if len(paths) > contract.MaxBatchFiles {
		return nil, nil, fmt.Errorf("reading: %w: %d files; %d are the most", ErrTooMany, len(paths), contract.MaxBatchFiles)
	}
	var bytes []byte
	out := make([]Whole, 0, len(paths))
	end := time.Now().Add(compareFor)
	for i, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if i > 0 && time.Now().After(end) {
			break
		}
		longer, one := r.readWhole(path, bytes)
		if i > 0 && len(longer) > contract.MaxBatchRead {
			break
		}
		bytes, out = longer, append(out, one)
	}
	return bytes, out, nil
}

// readWhole adds a file's bytes to those before it.
func (r *Roots) readWhole(path string, before []byte) ([]byte, Whole) {
	o, err := r.open(path)
	if err != nil {
		return before, Whole{Err: err}
	}
	defer o.Close()
	one := Whole{Size: o.Size, ETag: o.ETag, Modified: o.Modified}
	if o.Size > contract.MaxBatchFile {
		return before, Whole{Err: fmt.Errorf("path %q: %w", path, ErrTooLarge)}
	}
	longer := append(before, make([]byte, o.Size)...)
	n, err := o.read("", 0, longer[len(before):])
	if err == nil && int64(n) < o.Size {
		err = ErrChanged
	}
	if err != nil {
		return before, Whole{Err: fmt.Errorf("path %q: %w", path, err)}
	}
	return longer, one
}
