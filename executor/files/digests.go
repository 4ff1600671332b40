package files

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

const (
	maxDigests   = 1000    // remembered; the one not asked for longest goes first
	maxPending   = 256     // files that wait to be hashed; more is ErrBusy
	hashedAtOnce = 4 << 20 // bytes of a file that is hashed while it is asked for: some milliseconds
	// settledAfter is when a file's times are old enough to tell a new change from
	// the last one. Without it a write in the same tick as the one before would keep
	// the old digest for ever.
	settledAfter = time.Second
)

// Digests computes SHA-256 of files, of big ones in the background, and remembers
// them by what they are digests of.
type Digests struct {
	roots   *Roots
	pending chan *digest

	mu     sync.Mutex
	known  map[source]*list.Element // of *digest: done, under way and pending
	recent *list.List               // the one asked for last is in front
}

// source is certain bytes: a place and what it held.
type source struct{ real, etag string }

// digest is one file's digest. sum and err are to be read once ended is closed.
type digest struct {
	of    source
	path  string // as asked for
	hash  *Hash
	begun time.Time
	ended chan struct{}
	sum   string
	err   error
}

// NewDigests serves digests of files in roots. Big files are hashed by Run only.
func NewDigests(roots *Roots) *Digests {
	return &Digests{
		roots:   roots,
		pending: make(chan *digest, maxPending),
		known:   map[source]*list.Element{},
		recent:  list.New(),
	}
}

// Run hashes until ctx ends.
func (d *Digests) Run(ctx context.Context) error {
	HashEach(ctx, d.pending, d.compute)
	return nil
}

// Stat is Roots.Stat with the file's SHA256, or with how far its hashing is when
// that is not done after wait. ErrBusy means that too many others wait for theirs.
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
		return out, fmt.Errorf("path %q: digest: %w", path, err)
	}
	return out, nil
}

// of is the digest of the open file: known, under way, or begun here.
func (d *Digests) of(ctx context.Context, path string, o *opened) (*digest, error) {
	one := &digest{of: source{o.real, o.ETag}, path: path, hash: NewHash(o.Size), ended: make(chan struct{})}
	if o.Size > hashedAtOnce {
		return d.begin(one)
	}
	d.mu.Lock()
	known := d.recall(one.of)
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	one.compute(ctx, o)
	if one.lasts(o) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.keep(one)
	}
	return one, nil
}

// recall is the digest of certain bytes when it is known or under way. The lock is held.
func (d *Digests) recall(of source) *digest {
	e, ok := d.known[of]
	if !ok {
		return nil
	}
	d.recent.MoveToFront(e)
	return e.Value.(*digest)
}

// begin has one computed by Run, unless it is known or under way.
func (d *Digests) begin(one *digest) (*digest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.recall(one.of); known != nil {
		return known, nil
	}
	select {
	case d.pending <- one:
		d.keep(one)
		return one, nil
	default:
		return nil, ErrBusy
	}
}

// keep remembers one, and forgets the one not asked for longest. The lock is held.
func (d *Digests) keep(one *digest) {
	d.forget(one.of)
	d.known[one.of] = d.recent.PushFront(one)
	for e := d.recent.Back(); d.recent.Len() > maxDigests && e != nil; e = e.Prev() {
		old := e.Value.(*digest)
		select {
		case <-old.ended:
			d.forget(old.of)
			return
		default:
		}
	}
}

// forget drops the digest of certain bytes when there is one. The lock is held.
func (d *Digests) forget(of source) {
	if e, ok := d.known[of]; ok {
		d.recent.Remove(e)
		delete(d.known, of)
	}
}

// compute opens one's file again and hashes it.
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
	if one.err != nil || !one.lasts(o) {
		d.mu.Lock()
		d.forget(one.of)
		d.mu.Unlock()
	}
}

// compute hashes the open file, which must stay as it is meanwhile.
func (one *digest) compute(ctx context.Context, o *opened) {
	one.begun = time.Now()
	sum, err := one.hash.Sum(ctx, o)
	if err == nil {
		err = o.Unchanged(o.File)
	}
	one.end(sum, err)
}

func (one *digest) end(sum string, err error) {
	one.sum, one.err = sum, err
	close(one.ended)
}

// lasts reports whether the digest may be remembered.
func (one *digest) lasts(o *opened) bool {
	return one.err == nil && one.begun.Sub(o.Changed) >= settledAfter
}
