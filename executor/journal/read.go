package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// ReadRequest selects a part of an execution and says how long to wait for it.
type ReadRequest struct {
	Offset   int64
	Wait     time.Duration
	MaxBytes int64 // of events; 0 means contract.DefaultReadBytes
	UntilEnd bool  // wait for the end or an input request, not for the first event
	// EventsAfter, when not 0, limits UntilEnd: after this time an event ends the wait too.
	EventsAfter time.Duration
	// BehindInput ends the wait as soon as the execution is queued behind one that waits for
	// input.
	BehindInput bool
	NoEvents    bool // return the state only
}

// Read waits until the execution has what r asks for, or until r.Wait is over, and
// returns its state and events then. The error may be ErrNotFound or ErrBadOffset.
func (j *Journal) Read(ctx context.Context, id string, r ReadRequest) (contract.Execution, error) {
	record, err := j.Find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	end := time.NewTimer(r.Wait)
	defer end.Stop()
	var eventsAfter <-chan time.Time
	if r.UntilEnd && r.EventsAfter > 0 {
		timer := time.NewTimer(r.EventsAfter)
		defer timer.Stop()
		eventsAfter = timer.C
	}
	for waited := false; ; waited = true {
		changed := record.changes(r.UntilEnd)
		if record.satisfies(r) {
			if waited {
				record.awaitEnd(ctx)
			}
			return record.read(r)
		}
		select {
		case <-changed:
		case <-eventsAfter:
			r.UntilEnd = false
		case <-end.C:
			return record.read(r)
		case <-ctx.Done():
			return contract.Execution{}, ctx.Err()
		}
	}
}

// satisfies reports whether r can be answered now.
func (r *Record) satisfies(request ReadRequest) bool {
	x := r.Snapshot()
	if settled(x.Status) || request.BehindInput && behindInput(x) {
		return true
	}
	return !request.UntilEnd && x.NextOffset > request.Offset
}

// endGrace is how long an answer with new events waits for the end of the execution.
// The last output and the end come within a moment; apart they cost two requests.
const endGrace = 5 * time.Millisecond

// awaitEnd returns when the execution has finished, or after endGrace.
func (r *Record) awaitEnd(ctx context.Context) {
	if r.Snapshot().Status.Finished() {
		return
	}
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	for {
		changed := r.changes(true)
		if r.Snapshot().Status.Finished() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *Record) read(request ReadRequest) (contract.Execution, error) {
	x := r.Snapshot() // before the events: one that finishes in between has no End yet
	if request.NoEvents {
		return x, nil
	}
	if request.Offset > x.NextOffset {
		if x.Status == contract.StatusLost { // a kill took events that the caller has read already
			x.End = true
			return x, nil
		}
		return x, fmt.Errorf("%w: %d is past %d", ErrBadOffset, request.Offset, x.NextOffset)
	}
	if request.MaxBytes == 0 {
		request.MaxBytes = contract.DefaultReadBytes
	}
	events, next, err := r.events.read(request.Offset, request.MaxBytes)
	if err != nil {
		return x, fmt.Errorf("reading the execution log: %w", err)
	}
	x.Events, x.NextOffset = events, next
	r.fetchedUpTo(request.Offset, next)
	x.End = x.Status.Finished() && next >= r.events.end()
	return x, nil
}

// fetchedUpTo notes that the events between two offsets were read.
func (r *Record) fetchedUpTo(from, next int64) {
	for before := r.fetched.Load(); from <= before && before < next; before = r.fetched.Load() {
		if r.fetched.CompareAndSwap(before, next) {
			return
		}
	}
}

// blobStore keeps the payloads of one execution that are too big for an event, each
// in a file named by its number.
type blobStore struct {
	dir   string // of the execution
	limit int64

	mu    sync.Mutex
	used  int64
	last  int                      // the highest number in use
	known map[string]contract.Blob // by SHA-256, so that a repeated payload has one file; at most contract.MaxBlobs
}

// measure finds the size of what an earlier executor left.
func (b *blobStore) measure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = 0
	names, _ := os.ReadDir(b.folder())
	for _, name := range names {
		if info, err := name.Info(); err == nil {
			b.used += info.Size()
		}
	}
}

func (b *blobStore) folder() string { return filepath.Join(b.dir, "blobs") }

func (b *blobStore) path(number int) string { return filepath.Join(b.folder(), strconv.Itoa(number)) }

func (b *blobStore) open(number int) (*os.File, error) {
	if number < 1 || number > contract.MaxBlobs {
		return nil, ErrNoBlob
	}
	f, err := bounded.Open(b.path(number))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, bounded.ErrNotFile) {
		return nil, ErrNoBlob
	}
	return f, err
}

var errBlobsFull = errors.New("the execution has no room left for big payloads")

// put keeps what write writes, at most size bytes, under the next number, unless the
// execution has an equal payload already.
func (b *blobStore) put(size int64, write func(io.Writer) error) (contract.Blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+size > b.limit || b.last >= contract.MaxBlobs {
		return contract.Blob{}, errBlobsFull
	}
	if err := os.MkdirAll(b.folder(), 0o700); err != nil {
		return contract.Blob{}, err
	}
	f, err := os.CreateTemp(b.folder(), "partial-")
	if err != nil {
		return contract.Blob{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	digest := sha256.New()
	if err := write(io.MultiWriter(f, digest)); err != nil {
		return contract.Blob{}, err
	}
	written, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return contract.Blob{}, err
	}
	return b.nameLocked(f.Name(), contract.Blob{SHA256: hex.EncodeToString(digest.Sum(nil)), Bytes: written})
}

// nameLocked gives a written payload its number and its file's name, unless an equal one
// has them. That one's file is checked, because a user may have deleted the state folder.
func (b *blobStore) nameLocked(written string, blob contract.Blob) (contract.Blob, error) {
	if same, ok := b.known[blob.SHA256]; ok {
		if _, err := os.Stat(b.path(same.Number)); err == nil {
			return same, nil
		}
	}
	blob.Number = b.last + 1
	if err := os.Rename(written, b.path(blob.Number)); err != nil {
		return contract.Blob{}, err
	}
	if b.known == nil {
		b.known = map[string]contract.Blob{}
	}
	b.known[blob.SHA256] = blob
	b.last = blob.Number
	b.used += blob.Bytes
	return blob, nil
}

// forget frees the memory of a store that may get no more payloads.
func (b *blobStore) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = nil
}

func (b *blobStore) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// drop deletes all payloads. Their numbers are not used again.
func (b *blobStore) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	os.RemoveAll(b.folder())
	b.used, b.known = 0, nil
}
