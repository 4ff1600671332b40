// Package partfile does what both programs do with a file that they receive in parts, under another
// name: it writes and records what arrives, computes the digest, and gives the file its name. It
// knows nothing of transfers. Start reading at Received.
package partfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// Suffix ends the names of unfinished files. Nothing else has it.
const Suffix = ".colab-part"

// ErrChanged means that a file is not what it was when it was opened.
var ErrChanged = errors.New("the file changed")

// hashBuffer is how many bytes are read at once: more would leave the CPU's cache before they are
// hashed.
const hashBuffer = 256 << 10

var hashBuffers = sync.Pool{New: func() any { return new([hashBuffer]byte) }}

// Hash is the computation of the SHA-256 of a file that may still grow. One goroutine at a time may
// use it; any may call Done.
type Hash struct {
	sum  hash.Hash
	done atomic.Int64
}

// NewHash is a hash of no bytes.
func NewHash() *Hash { return &Hash{sum: sha256.New()} }

// ReadTo reads on, from where the last call ended, up to the offset to, and calls step with the size
// of each piece unless it is nil. ErrChanged means that from is shorter. After another error, such as
// the cause of the end of ctx, the next call continues.
func (h *Hash) ReadTo(ctx context.Context, from io.ReaderAt, to int64, step func(n int64)) error {
	buf := hashBuffers.Get().(*[hashBuffer]byte)
	defer hashBuffers.Put(buf)
	for at := h.done.Load(); at < to; at = h.done.Load() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := from.ReadAt(buf[:min(hashBuffer, to-at)], at)
		h.sum.Write(buf[:n])
		h.done.Add(int64(n))
		if step != nil {
			step(int64(n))
		}
		switch {
		case at+int64(n) == to:
		case errors.Is(err, io.EOF):
			return ErrChanged
		case err != nil:
			return err
		}
	}
	return nil
}

// Done is how many bytes were read.
func (h *Hash) Done() int64 { return h.done.Load() }

// Sum is the digest of the bytes read so far, in lower-case hex.
func (h *Hash) Sum() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// Folder is an open folder, such as an os.Root.
type Folder interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Link(from, to string) error
	Rename(from, to string) error
	Remove(name string) error
}

// Place gives the file part the name to. It fails with fs.ErrExist if another file has it.
func Place(in Folder, part, to string) error {
	err := in.Link(part, to)
	if err == nil {
		return in.Remove(part)
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	return claim(in, part, to) // a file system without hard links, such as Drive's or FAT
}

// claim is Place without hard links: it creates an empty file with the name, which the part then
// replaces. It is the second choice because a reader may see the empty file.
func claim(in Folder, part, to string) error {
	f, err := in.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	f.Close()
	if err = in.Rename(part, to); err != nil {
		_ = in.Remove(to)
	}
	return err
}
