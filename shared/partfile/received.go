package partfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// The journal on disk is up to saveBytes and one piece of the file behind, or saveAfter. A kill
// costs these bytes; writing a journal costs as much as writing some 100 KB.
const (
	saveBytes = 4 << 20
	saveAfter = time.Second
)

// hashBytes is how many bytes in order are worth hashing, and are hashed before the next piece is
// read. As parts arrive side by side, most bytes can't be hashed when they arrive. They are read back
// from the file, and still in the system's memory.
const hashBytes = 1 << 20

// ErrBadRange means bytes that are not in a file, or more pieces of it than a journal lists.
var ErrBadRange = errors.New("range outside the file")

// File is an open part file.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// Received is the bytes of a part file that have arrived, in any order, and their digest as far as
// there are no gaps. A journal on disk lists them. Any number of goroutines may use it.
type Received struct {
	size int64
	save func(ranges.Set) error // replaces the journal

	mu      sync.Mutex
	set     ranges.Set
	unsaved int64     // bytes that the journal on disk does not list
	saved   time.Time // when it was written
	ended   bool      // no more bytes are written, nor is the journal
	why     error

	hashing sync.Mutex // of who uses hash
	hash    *Hash
}

// NewReceived continues a part file of size bytes, of which set arrived earlier.
func NewReceived(size int64, set ranges.Set, save func(ranges.Set) error) *Received {
	return &Received{size: size, set: set, save: save, saved: time.Now(), hash: NewHash()}
}

// Write writes bytes that belong at offset, but none that arrived before, and hashes what is
// in order by then. So little of a large file is left to hash when its last byte is there.
func (r *Received) Write(f File, offset int64, b []byte) error {
	if err := r.write(f, offset, b); err != nil {
		return err
	}
	if !r.hashing.TryLock() {
		return nil // the receiver of another part hashes
	}
	defer r.hashing.Unlock()
	r.mu.Lock()
	ready := !r.ended && r.set.Prefix()-r.hash.Done() >= hashBytes
	r.mu.Unlock()
	if ready {
		_ = r.hash.ReadTo(context.Background(), f, r.hash.Done()+hashBytes, nil) // Sum reads on from there, and reports an error
	}
	return nil
}

func (r *Received) write(f File, offset int64, b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return r.why
	}
	all := contract.Range{Offset: offset, Length: int64(len(b))}
	if len(r.set.Add(all)) >= contract.MaxUploadRanges { // so that an answer lists all that is missing
		return fmt.Errorf("%w: more than %d pieces", ErrBadRange, contract.MaxUploadRanges-1)
	}
	for _, w := range r.set.Missing(all) {
		n, err := f.WriteAt(b[w.Offset-offset:w.End()-offset], w.Offset)
		w.Length = int64(n)
		r.set = r.set.Add(w)
		r.unsaved += w.Length
		if err != nil {
			return err
		}
	}
	if r.unsaved < saveBytes && time.Since(r.saved) < saveAfter || r.set.Total() == r.size {
		return nil // a complete file is about to get its name
	}
	return r.saveLocked()
}

func (r *Received) saveLocked() error {
	r.unsaved, r.saved = 0, time.Now()
	return r.save(r.set)
}

// Save has the journal list all bytes.
func (r *Received) Save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.unsaved == 0 {
		return r.why
	}
	return r.saveLocked()
}

// End has later calls of Write and Save do nothing but return why.
func (r *Received) End(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.why = true, why
}

// Lose forgets all bytes, because some are wrong, and returns their number.
// The file is then to be received from its beginning, as another Received.
func (r *Received) Lose() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.set.Total()
	r.set = nil
	return n
}

// Total is how many bytes have arrived.
func (r *Received) Total() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set.Total()
}

// Missing is the bytes that have not arrived.
func (r *Received) Missing() ranges.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set.Missing(contract.Range{Length: r.size})
}

// Sum is the digest of the complete file. After the end of ctx, the next call continues.
func (r *Received) Sum(ctx context.Context, f File, step func(n int64)) (string, error) {
	r.hashing.Lock()
	defer r.hashing.Unlock()
	err := r.hash.ReadTo(ctx, f, r.size, step)
	return r.hash.Sum(), err
}
