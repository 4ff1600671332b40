package uploads

import (
	"context"
	"io/fs"
	"os"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// prefixHash is the SHA-256 of the first bytes of a part file. It follows the bytes that
// arrive, so that little is left to hash at the commit. It reads them back from the part
// file: parts arrive side by side, so most bytes can't be hashed when they arrive. They are
// still in the system's memory.
type prefixHash struct {
	*files.Hash
	of fs.FileInfo // the part file, once it was read
}

func newPrefixHash(size int64) *prefixHash { return &prefixHash{Hash: files.NewHash(size)} }

// read hashes f up to the offset to. It starts again if f is not the file that it read
// before. ErrChanged means that f is shorter.
func (h *prefixHash) read(ctx context.Context, f *os.File, to int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if h.of != nil && !os.SameFile(h.of, info) {
		h.Reset()
	}
	h.of = info
	return h.ReadTo(ctx, f, to)
}

// enqueueLocked has the upload hashed soon. It reports whether that will happen.
func (o *upload) enqueueLocked() bool {
	if o.queued {
		return true
	}
	select {
	case o.work <- o:
		o.queued = true
	default: // dropped uploads may still fill the queue
	}
	return o.queued
}

// follow hashes what has arrived in order since the last time, and commits the upload if
// that was requested. It is called by one goroutine at a time.
func (o *upload) follow(ctx context.Context) {
	if f, prefix, to := o.unhashed(); f != nil {
		_ = prefix.read(ctx, f, to) // the commit reads on from there, and reports an error
		f.Close()
	}
	o.mu.Lock()
	committing := o.status == contract.UploadHashing
	o.queued = committing
	o.mu.Unlock()
	if committing {
		o.finish(ctx)
	}
}

// unhashed opens the part file for follow. The file is nil if there is nothing to do.
func (o *upload) unhashed() (*os.File, *prefixHash, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped || o.status != contract.UploadReceiving {
		return nil, nil, 0
	}
	dir, f, err := o.openPart(os.O_RDONLY)
	if err != nil {
		return nil, nil, 0
	}
	dir.Close()
	return f, o.prefix, o.got.Prefix()
}
