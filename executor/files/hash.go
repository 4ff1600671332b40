package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
)

const (
	maxHashing = 2       // files hashed at the same time: Colab's VM has two cores
	hashBuffer = 1 << 20 // bytes of one read; ctx is checked between reads
)

// Hash is the computation of a SHA-256, and its progress.
type Hash struct {
	total int64 // bytes to read
	done  atomic.Int64
}

// NewHash is a hash of total bytes, of which none is read yet.
func NewHash(total int64) *Hash { return &Hash{total: total} }

// Sum reads from until its end and returns the digest in lower-case hex.
func (h *Hash) Sum(ctx context.Context, from io.Reader) (string, error) {
	sum := sha256.New()
	buf := make([]byte, min(hashBuffer, max(512, h.total)))
	for ctx.Err() == nil {
		n, err := from.Read(buf)
		sum.Write(buf[:n])
		h.done.Add(int64(n))
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", ctx.Err()
}

// SumOf is the digest of a file. It fails with ErrChanged if the file changes while it is read.
func (h *Hash) SumOf(ctx context.Context, f *os.File) (string, error) {
	v, err := VersionOf(f)
	if err != nil {
		return "", err
	}
	sum, err := h.Sum(ctx, f)
	if err != nil {
		return "", err
	}
	return sum, v.Unchanged(f)
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
