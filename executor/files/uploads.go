package files

import (
	"context"
	"time"

	"colabrelay/shared/contract"
)

// Uploads takes files in.
type Uploads struct{ roots *Roots }

// OpenUploads takes the uploads under dir up again, which is made when missing.
func OpenUploads(roots *Roots, dir string) (*Uploads, error) { return &Uploads{roots: roots}, nil }

// Run commits uploads and drops forgotten ones until ctx ends.
func (u *Uploads) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Start begins an upload, or resumes the one that was begun by the same call.
func (u *Uploads) Start(s contract.UploadStart) (contract.Upload, error) {
	return contract.Upload{}, ErrNoUpload
}

// Put keeps body as the bytes from offset on. proven says that its digest was
// checked; what was not is sent again when the whole turns out wrong.
func (u *Uploads) Put(id string, offset int64, body []byte, proven bool) (contract.Upload, error) {
	return contract.Upload{}, ErrNoUpload
}

// Get is the upload as it stands; while it is hashing, once that ends or wait is over.
func (u *Uploads) Get(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return contract.Upload{}, ErrNoUpload
}

// Commit checks the whole and puts it in its place, waiting up to wait for that.
func (u *Uploads) Commit(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return contract.Upload{}, ErrNoUpload
}
