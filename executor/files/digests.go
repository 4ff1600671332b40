package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"colabrelay/shared/contract"
	"colabrelay/shared/partfile"
)

const (
	maxDigests   = 1000    // digests that are known, or known in part; the least recently used one is forgotten
	hashedAtOnce = 4 << 20 // a file of at most so many bytes is hashed whatever the request's wait, in some milliseconds
	// settledAfter is the age from which a file's times distinguish a new change from the
	// last one. Without it, a write within the same clock tick as the one before would
	// leave the old digest in the cache for ever.
	settledAfter = time.Second
)

// Digests computes the SHA-256 of files, and remembers the last ones. Whoever asks for a digest
// hashes the file; a request that ends before leaves what it hashed to the next one.
type Digests struct {
	roots        *Roots
	settledAfter time.Duration

	mu    sync.Mutex
	known *simplelru.LRU[source, *digest]
}

// source identifies the bytes of a file: its real path, its etag and how many they are.
type source struct {
	real, etag string
	size       int64
	grows      bool // the file may have become longer since it had the etag
}

// check fails with ErrChanged if v, the file's version now, does not have these bytes.
func (s source) check(v Version) error {
	length, err := v.lengthAt(s.etag)
	if err == nil && (s.size > length || !s.grows && v.ETag != s.etag) {
		err = ErrChanged
	}
	return err
}

// digest is the digest of one file. Whoever put a value into reader may use the other fields.
type digest struct {
	reader  chan struct{}
	hash    *partfile.Hash
	started time.Time
	sum     string // empty until the file was read to its end
}

// NewDigests makes digests of the files in roots.
func NewDigests(roots *Roots) *Digests {
	known, err := simplelru.NewLRU[source, *digest](maxDigests, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &Digests{roots: roots, settledAfter: settledAfter, known: known}
}

// Stat is Roots.Stat with the file's SHA256, unless a large file is not hashed after wait. With an etag, it is the SHA256 of the first size
// bytes, and Stat fails with ErrChanged unless the file had the etag, and is unchanged since or only
// became longer.
func (d *Digests) Stat(ctx context.Context, path, etag string, size int64, wait time.Duration) (contract.FileStat, error) {
	out, o, err := d.roots.stat(path)
	if err != nil || o == nil && etag == "" {
		return out, err
	}
	if o == nil {
		return out, fmt.Errorf("path %q: %w", path, ErrChanged)
	}
	defer o.Close()
	of := o.source()
	if etag != "" {
		of = source{o.real, etag, size, true}
	}
	out.SHA256, err = d.sum(ctx, o, of, wait)
	if err != nil && !errors.Is(err, errHashing) {
		return out, fmt.Errorf("path %q: computing its SHA-256: %w", path, err)
	}
	return out, nil
}

// Of is the SHA-256 of an open file, which is at a real path, and its etag. ErrChanged means that it
// changed meanwhile.
func (d *Digests) Of(ctx context.Context, f *os.File, path string) (sum, etag string, err error) {
	v, err := VersionOf(f)
	if err != nil {
		return "", "", err
	}
	o := &opened{File: f, Version: v, real: path}
	sum, err = d.sum(ctx, o, o.source(), contract.MaxWait)
	return sum, v.ETag, err
}

func (o *opened) source() source { return source{real: o.real, etag: o.ETag, size: o.Size} }

// errHashing means that a digest is not known yet.
var errHashing = errors.New("being hashed")

// sum is the digest of bytes of an open file. If they are many and not hashed after wait, it fails
// with errHashing.
func (d *Digests) sum(ctx context.Context, o *opened, of source, wait time.Duration) (string, error) {
	if err := of.check(o.Version); err != nil {
		return "", err
	}
	within := ctx
	if of.size > hashedAtOnce {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	one := d.find(of)
	select {
	case one.reader <- struct{}{}:
	default: // another request hashes it
		select {
		case one.reader <- struct{}{}:
		case <-within.Done():
			return "", whyEnded(ctx)
		}
	}
	defer func() { <-one.reader }()
	if one.sum != "" {
		return one.sum, nil
	}
	err := one.read(within, o, of)
	if err != nil && within.Err() != nil {
		return "", whyEnded(ctx)
	}
	if err != nil || of.grows || one.started.Sub(o.Changed) < d.settledAfter {
		d.forget(of, one)
	}
	return one.sum, err
}

// whyEnded is why a digest is not known yet: the end of the request, or of its wait.
func whyEnded(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errHashing
}

// find is the digest of the source, as far as it is known.
func (d *Digests) find(of source) *digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.known.Get(of)
	if !ok {
		one = &digest{reader: make(chan struct{}, 1), hash: partfile.NewHash(), started: time.Now()}
		d.known.Add(of, one)
	}
	return one
}

// forget has the source hashed anew for the next request.
func (d *Digests) forget(of source, one *digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.known.Peek(of); ok && known == one {
		d.known.Remove(of)
	}
}

// read hashes the open file, from where the last call ended. It fails with ErrChanged if the
// file changes. After ctx has ended, it can be called again.
func (one *digest) read(ctx context.Context, o *opened, of source) error {
	if err := one.hash.ReadTo(ctx, o, of.size, nil); err != nil {
		return err
	}
	now, err := VersionOf(o.File)
	if err == nil {
		err = of.check(now)
	}
	if err == nil {
		one.sum = one.hash.Sum()
	}
	return err
}
