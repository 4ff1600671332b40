package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
)

// digest computes the SHA-256 of a file that may still grow.
type digest struct {
	sum hash.Hash
	at  int64 // bytes read so far
	buf []byte
}

// digestBuffer is how many bytes are read at once: a larger buffer leaves the CPU's cache
// before it is hashed.
const digestBuffer = 256 << 10

func newDigest() *digest { return &digest{sum: sha256.New()} }

// read continues up to the offset to. It reads in pieces, so that it returns soon after
// ctx ends, and calls step for each if step is not nil. A shorter file is errStale.
func (d *digest) read(ctx context.Context, r io.ReaderAt, to int64, step func(n int64)) error {
	if want := min(digestBuffer, to-d.at); int64(len(d.buf)) < want {
		d.buf = make([]byte, want)
	}
	for d.at < to {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.ReadAt(d.buf[:min(int64(len(d.buf)), to-d.at)], d.at)
		d.sum.Write(d.buf[:n])
		d.at += int64(n)
		if step != nil {
			step(int64(n))
		}
		switch {
		case err == nil || d.at == to:
		case errors.Is(err, io.EOF):
			return errStale
		default:
			return err
		}
	}
	return nil
}

func (d *digest) String() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// readDigest returns the SHA-256 of the first size bytes of r.
func readDigest(ctx context.Context, r io.ReaderAt, size int64, step func(n int64)) (string, error) {
	d := newDigest()
	err := d.read(ctx, r, size, step)
	return d.String(), err
}
