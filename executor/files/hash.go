package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
)

const (
	maxHashing = 2       // files hashed at once: Colab's VM has two cores
	hashBuffer = 1 << 20 // bytes read at once; ctx is looked at in between
)

// hash is a SHA-256 being computed, and how far it is.
type hash struct {
	total int64 // bytes there are
	done  atomic.Int64
}

// sum reads from to its end.
func (h *hash) sum(ctx context.Context, from io.Reader) (string, error) {
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

// sumOf is the digest of a file that does not change meanwhile, else ErrChanged.
func (h *hash) sumOf(ctx context.Context, f *os.File) (string, error) {
	v, err := versionOf(f)
	if err != nil {
		return "", err
	}
	sum, err := h.sum(ctx, f)
	if err != nil {
		return "", err
	}
	return sum, v.unchanged(f)
}

func (h *hash) progress() *contract.Hashing {
	return &contract.Hashing{HashedBytes: h.done.Load(), TotalBytes: h.total}
}

// await reports whether ended is closed, at the latest after wait or when ctx ends.
func await(ctx context.Context, ended <-chan struct{}, wait time.Duration) bool {
	select {
	case <-ended:
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
