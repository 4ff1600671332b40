package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"colabrelay/shared/contract"
	"colabrelay/shared/partfile"
)

const (
	maxDigests   = 1000    // finished digests in the cache; the least recently used one is evicted
	maxPending   = 256     // files that are hashed in the background; one more is refused with ErrBusy
	hashedAtOnce = 4 << 20 // a file of at most so many bytes is hashed within its request, in some milliseconds
	// settledAfter is the age from which a file's times distinguish a new change from the
	// last one. Without it, a write within the same clock tick as the one before would
	// leave the old digest in the cache for ever.
	settledAfter = time.Second
	// hashingTurn is how long a file is hashed while others wait. Its turn over, it waits
	// again behind them, so that no file keeps the others waiting, however large it is.
	hashingTurn = 5 * time.Second
	// unwantedAfter is how long a file is hashed on after the last request for its digest.
	// It is longer than the wait of a request, after which a relay asks again.
	unwantedAfter = 2 * contract.MaxWait
)

// Digests computes the SHA-256 of files, of large ones in the background, and caches
// the results.
type Digests struct {
	roots        *Roots
	pending      chan *digest
	settledAfter time.Duration

	mu        sync.Mutex
	computing map[source]*digest // in the background: at most maxPending, so that pending has room for each
	finished  *simplelru.LRU[source, *digest]
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

// digest is the digest of one file. sum and err may be read once ended is closed.
type digest struct {
	of      source
	path    string // as requested
	hash    *partfile.Hash
	asked   time.Time // of the last request for it; Digests.mu guards it
	started time.Time // of its first turn
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

// Run hashes large files until ctx ends. Files take turns.
func (d *Digests) Run(ctx context.Context) error {
	HashEach(ctx, d.pending, func(ctx context.Context, one *digest) {
		if !d.take(ctx, one) {
			d.pending <- one
		}
	})
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
	return d.complete(ctx, path, o, source{real: o.real, etag: o.ETag, size: o.Size}, out, wait)
}

// Prefix is Stat with the SHA256 of the file's first size bytes. It fails with ErrChanged unless
// the file had the etag, and is unchanged since or only became longer.
func (d *Digests) Prefix(ctx context.Context, path, etag string, size int64, wait time.Duration) (contract.FileStat, error) {
	out, o, err := d.roots.stat(path)
	if err != nil {
		return out, err
	}
	if o == nil {
		return out, fmt.Errorf("path %q: %w", path, ErrChanged)
	}
	return d.complete(ctx, path, o, source{o.real, etag, size, true}, out, wait)
}

// complete adds to out the digest of bytes of the open file, which it closes.
func (d *Digests) complete(ctx context.Context, path string, o *opened, of source, out contract.FileStat, wait time.Duration) (contract.FileStat, error) {
	one, err := d.of(ctx, path, o, of)
	o.Close()
	if err == nil && !Await(ctx, one.ended, wait) {
		out.Hashing = &contract.Hashing{HashedBytes: one.hash.Done(), TotalBytes: one.of.size}
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

// of is the digest of bytes of an open file: cached, being computed, or started now.
func (d *Digests) of(ctx context.Context, path string, o *opened, of source) (*digest, error) {
	if err := of.check(o.Version); err != nil {
		return nil, err
	}
	one := &digest{of: of, path: path, hash: partfile.NewHash(), ended: make(chan struct{})}
	if of.size > hashedAtOnce {
		return d.queue(one)
	}
	d.mu.Lock()
	cached := d.lookUpLocked(one.of)
	d.mu.Unlock()
	if cached != nil {
		return cached, nil
	}
	one.end(one.read(ctx, o))
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
		known.asked = time.Now()
		return known, nil
	}
	if len(d.computing) == maxPending {
		return nil, ErrBusy
	}
	one.asked = time.Now()
	d.computing[one.of] = one
	d.pending <- one
	return one, nil
}

// finish caches one if it was computed without an error, and if the file o that it was
// computed from had settled.
func (d *Digests) finish(one *digest, o *opened) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.computing[one.of] == one {
		delete(d.computing, one.of)
	}
	if one.err == nil && !one.of.grows && one.started.Sub(o.Changed) >= d.settledAfter {
		d.finished.Add(one.of, one)
	}
}

// take hashes one for a turn and reports whether it has ended.
func (d *Digests) take(ctx context.Context, one *digest) bool {
	turn, cancel := context.WithTimeout(ctx, hashingTurn)
	defer cancel()
	o, err := d.reopen(one)
	if err == nil {
		defer o.Close()
		err = one.read(turn, o)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		if d.wanted(one) {
			return false
		}
		err = ErrBusy
	}
	one.end(err)
	d.finish(one, o)
	return true
}

// wanted reports whether somebody asked for one lately.
func (d *Digests) wanted(one *digest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(one.asked) < unwantedAfter
}

// reopen opens the file of one again. It fails with ErrChanged if the file is another now.
func (d *Digests) reopen(one *digest) (*opened, error) {
	o, err := d.roots.open(one.path)
	if err != nil {
		return nil, err
	}
	if o.real != one.of.real || one.of.check(o.Version) != nil {
		o.Close()
		return nil, ErrChanged
	}
	return o, nil
}

// read hashes the open file, from where the last call ended. It fails with ErrChanged if the
// file changes. After ctx has ended, it can be called again.
func (one *digest) read(ctx context.Context, o *opened) error {
	if one.started.IsZero() {
		one.started = time.Now()
	}
	if err := one.hash.ReadTo(ctx, o, one.of.size, nil); err != nil {
		return err
	}
	now, err := VersionOf(o.File)
	if err == nil {
		err = one.of.check(now)
	}
	return err
}

// end makes the digest known, or the error that prevented it.
func (one *digest) end(err error) {
	if one.err = err; err == nil {
		one.sum = one.hash.Sum()
	}
	close(one.ended)
}

const maxHashing = 2 // files hashed at the same time: Colab's VM has two cores

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

const (
	keptSnapshots = 2
	// maxSnapshot is how many bytes one may take: some 150,000 names. A larger folder is read
	// again for every page.
	maxSnapshot = 16 << 20
	// keepSnapshot is how long pages may come from the same snapshot.
	keepSnapshot = 30 * time.Second
)

// snapshot is the entries of a folder when it was read.
type snapshot struct {
	key         string // see snapshotKey
	made        time.Time
	entries     []entry // sorted
	files, dirs int
	bytes       int64
}

// bytes estimates the memory of an entry.
func (e entry) bytes() int64 {
	n := 64 + len(e.name)
	if e.shown != e.name { // otherwise they are one string
		n += len(e.shown)
	}
	return int64(n)
}

// snapshots are kept of the last folders that are being listed page by page, because otherwise
// every page reads the whole folder. A first page always reads the folder, so a listing shows
// everything that existed when it began.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot // the newest last
}

// snapshotKey identifies a folder and the path by which it was requested, on which its
// loops depend.
func snapshotKey(at location, shown string) string {
	var inode uint64
	if st, ok := at.info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %q %q", inode, at.path(), shown)
}

// take returns the snapshot of a folder, and keeps it no longer.
func (s *snapshots) take(key string) (one snapshot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = slices.DeleteFunc(s.kept, func(kept snapshot) bool {
		if kept.key == key {
			one, ok = kept, time.Since(kept.made) < keepSnapshot
		}
		return kept.key == key
	})
	return one, ok
}

func (s *snapshots) keep(one snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, one)
	s.kept = slices.Delete(s.kept, 0, max(0, len(s.kept)-keptSnapshots))
}
