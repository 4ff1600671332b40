package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
)

const (
	maxHashing = 2         // files hashed at the same time: Colab's VM has two cores
	hashBuffer = 256 << 10 // bytes of one read: more would leave the CPU's cache before they are hashed
)

var hashBuffers = sync.Pool{New: func() any { return new([hashBuffer]byte) }}

// Hash is the computation of a file's SHA-256, and its progress. One goroutine at a time may
// use it; any may call Progress.
type Hash struct {
	total int64 // bytes to read
	sum   hash.Hash
	done  atomic.Int64
}

// NewHash is a hash of total bytes, of which none is read yet.
func NewHash(total int64) *Hash { return &Hash{total: total, sum: sha256.New()} }

// ReadTo reads on, from where the last call ended, up to the offset to. ErrChanged means that
// from is shorter. After another error, the next call continues.
func (h *Hash) ReadTo(ctx context.Context, from io.ReaderAt, to int64) error {
	buf := hashBuffers.Get().(*[hashBuffer]byte)
	defer hashBuffers.Put(buf)
	for at := h.done.Load(); at < to; at = h.done.Load() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := from.ReadAt(buf[:min(hashBuffer, to-at)], at)
		h.sum.Write(buf[:n])
		h.done.Add(int64(n))
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

// Reset makes h a hash of which nothing is read.
func (h *Hash) Reset() {
	h.sum.Reset()
	h.done.Store(0)
}

// Sum is the digest of the bytes read so far, in lower-case hex.
func (h *Hash) Sum() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// SumOf is the digest of a file. It fails with ErrChanged if the file changes while it is read.
func (h *Hash) SumOf(ctx context.Context, f *os.File) (string, error) {
	v, err := VersionOf(f)
	if err != nil {
		return "", err
	}
	if err := h.ReadTo(ctx, f, v.Size); err != nil {
		return "", err
	}
	return h.Sum(), v.Unchanged(f)
}

// Progress is how much of the total has been hashed.
func (h *Hash) Progress() *contract.Hashing {
	return &contract.Hashing{HashedBytes: h.done.Load(), TotalBytes: h.total}
}

// HashEach calls hash for every value that arrives in queue until ctx ends. It works on
// as many values at the same time as may be hashed at the same time.
func HashEach[T any](ctx context.Context, queue <-chan T, hash func(context.Context, T)) {
	var workers sync.WaitGroup
	for range maxHashing {
		workers.Go(func() {
			for {
				select {
				case one := <-queue:
					hash(ctx, one)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	workers.Wait()
}

// Await waits until ended is closed, wait has passed or ctx ends. It reports whether ended
// is closed.
func Await(ctx context.Context, ended <-chan struct{}, wait time.Duration) bool {
	select {
	case <-ended: // also if wait is 0
		return true
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
