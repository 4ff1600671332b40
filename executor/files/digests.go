package files

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"colabrelay/shared/contract"
)

const (
	maxDigests   = 1000    // finished digests in the cache; the least recently used one is evicted
	maxPending   = 256     // files that wait to be hashed; one more is refused with ErrBusy
	hashedAtOnce = 4 << 20 // a file of at most so many bytes is hashed within its request, in some milliseconds
	// settledAfter is the age from which a file's times distinguish a new change from the
	// last one. Without it, a write within the same clock tick as the one before would
	// leave the old digest in the cache for ever.
	settledAfter = time.Second
)

// Digests computes the SHA-256 of files, of large ones in the background, and caches
// the results.
type Digests struct {
	roots        *Roots
	pending      chan *digest
	settledAfter time.Duration

	mu        sync.Mutex
	computing map[source]*digest // waiting to be hashed, or being hashed, in the background
	finished  *simplelru.LRU[source, *digest]
}

// source identifies the bytes of a file: its real path and its etag.
type source struct{ real, etag string }

// digest is the digest of one file. sum and err may be read once ended is closed.
type digest struct {
	of      source
	path    string // as requested
	hash    *Hash
	started time.Time
	ended   chan struct{}
	sum     string
	err     error
}

// NewDigests makes digests of the files in roots. Large files are hashed only while Run runs.
func NewDigests(roots *Roots) *Digests {
	finished, err := simplelru.NewLRU[source, *digest](maxDigests, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &Digests{
		roots: roots, pending: make(chan *digest, maxPending), settledAfter: settledAfter,
		computing: map[source]*digest{}, finished: finished,
	}
}

// Run hashes large files until ctx ends.
func (d *Digests) Run(ctx context.Context) error {
	HashEach(ctx, d.pending, d.compute)
	return nil
}

// Stat is Roots.Stat with the file's SHA256. If a large file is not hashed after wait,
// the answer has the progress of its hashing instead. ErrBusy means that too many
// files wait to be hashed.
func (d *Digests) Stat(ctx context.Context, path string, wait time.Duration) (contract.FileStat, error) {
	out, o, err := d.roots.stat(path)
	if err != nil || o == nil {
		return out, err
	}
	one, err := d.of(ctx, path, o)
	o.Close()
	if err == nil && !Await(ctx, one.ended, wait) {
		out.Hashing = one.hash.Progress()
		return out, nil
	}
	if err == nil {
		out.SHA256, err = one.sum, one.err
	}
	if err != nil {
		return out, fmt.Errorf("path %q: computing its SHA-256: %w", path, err)
	}
	return out, nil
}

// of is the digest of an open file: cached, being computed, or started now.
func (d *Digests) of(ctx context.Context, path string, o *opened) (*digest, error) {
	one := &digest{of: source{o.real, o.ETag}, path: path, hash: NewHash(o.Size), ended: make(chan struct{})}
	if o.Size > hashedAtOnce {
		return d.queue(one)
	}
	d.mu.Lock()
	cached := d.lookUpLocked(one.of)
	d.mu.Unlock()
	if cached != nil {
		return cached, nil
	}
	one.compute(ctx, o)
	d.finish(one, o)
	return one, nil
}

// lookUpLocked is the digest of the source if it is cached or being computed.
func (d *Digests) lookUpLocked(of source) *digest {
	if one, ok := d.computing[of]; ok {
		return one
	}
	one, _ := d.finished.Get(of)
	return one
}

// queue has one computed by Run, unless it is cached or being computed.
func (d *Digests) queue(one *digest) (*digest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.lookUpLocked(one.of); known != nil {
		return known, nil
	}
	select {
	case d.pending <- one:
		d.computing[one.of] = one
		return one, nil
	default:
		return nil, ErrBusy
	}
}

// finish caches one if it was computed without an error, and if the file o that it was
// computed from had settled.
func (d *Digests) finish(one *digest, o *opened) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.computing[one.of] == one {
		delete(d.computing, one.of)
	}
	if one.err == nil && one.started.Sub(o.Changed) >= d.settledAfter {
		d.finished.Add(one.of, one)
	}
}

// compute opens the file of one again and hashes it.
func (d *Digests) compute(ctx context.Context, one *digest) {
	o, err := d.roots.open(one.path)
	if err == nil {
		defer o.Close()
	}
	switch {
	case err != nil:
		one.end("", err)
	case o.real != one.of.real || o.ETag != one.of.etag:
		one.end("", ErrChanged)
	default:
		one.compute(ctx, o)
	}
	d.finish(one, o)
}

// compute hashes the open file. It fails with ErrChanged if the file changes.
func (one *digest) compute(ctx context.Context, o *opened) {
	one.started = time.Now()
	err := one.hash.ReadTo(ctx, o, o.Size)
	if err == nil {
		err = o.Unchanged(o.File)
	}
	if err != nil {
		one.end("", err)
		return
	}
	one.end(one.hash.Sum(), nil)
}

func (one *digest) end(sum string, err error) {
	one.sum, one.err = sum, err
	close(one.ended)
}
