package files

import (
	"context"
	"fmt"
	"io"
	"time"

	"colabrelay/shared/contract"
)

// Content describes one file of many that were read, or why it could not be read.
type Content struct {
	Size     int64
	ETag     string
	Modified time.Time
	Err      error
}

// ReadMany reads small files, each as a Part is read, and returns their bytes one after the
// other. It reads at least one of paths, and stops when the bytes would exceed
// contract.MaxBatchRead or when it takes too long. A file that can't be read has an error
// and no bytes, and does not affect the others.
func (r *Roots) ReadMany(ctx context.Context, paths []string) ([]byte, []Content, error) {
	if len(paths) > contract.MaxBatchFiles {
		return nil, nil, fmt.Errorf("reading files: %w: %d, at most %d", ErrTooMany, len(paths), contract.MaxBatchFiles)
	}
	var bytes []byte
	out := make([]Content, 0, len(paths))
	end := time.Now().Add(manyFilesTime)
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

// readWhole appends the bytes of a file to before.
func (r *Roots) readWhole(path string, before []byte) ([]byte, Content) {
	o, err := r.open(path)
	if err != nil {
		return before, Content{Err: err}
	}
	defer o.Close()
	one := Content{Size: o.Size, ETag: o.ETag, Modified: o.Modified}
	if o.Size > contract.MaxBatchFile {
		return before, Content{Err: fmt.Errorf("path %q: %w", path, ErrTooLarge)}
	}
	longer := append(before, make([]byte, o.Size)...)
	if _, err := io.ReadFull(&Part{file: o, path: path, end: o.Size}, longer[len(before):]); err != nil {
		return before, Content{Err: err}
	}
	return longer, one
}
