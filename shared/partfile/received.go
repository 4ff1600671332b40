package partfile

import (
	"cmp"
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

// lanes is how many parts of laneBytes are written side by side.
const (
	lanes     = 16
	laneBytes = contract.MaxFilePart
)

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

	// lanes lock what is being written: parts that arrive side by side are in different ones.
	lanes [lanes]sync.Mutex

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

// write splits the bytes so that nobody else writes what it is writing: two copies of a part may
// arrive at a time, and differ.
func (r *Received) write(f File, offset int64, b []byte) error {
	for len(b) > 0 {
		n := min(int64(len(b)), laneBytes-offset%laneBytes)
		if err := r.writeInLane(f, offset, b[:n]); err != nil {
			return err
		}
		offset, b = offset+n, b[n:]
	}
	return nil
}

func (r *Received) writeInLane(f File, offset int64, b []byte) error {
	lane := &r.lanes[offset/laneBytes%lanes]
	lane.Lock()
	defer lane.Unlock()
	todo, err := r.todo(contract.Range{Offset: offset, Length: int64(len(b))})
	if err != nil {
		return err
	}
	for _, w := range todo {
		n, err := f.WriteAt(b[w.Offset-offset:w.End()-offset], w.Offset)
		w.Length = int64(n)
		if err = cmp.Or(err, r.add(w)); err != nil {
			return err
		}
	}
	return nil
}

// todo is what is missing of all.
func (r *Received) todo(all contract.Range) (ranges.Set, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, r.why
	}
	return r.set.Missing(all), nil
}

// add notes bytes that are written. The journal lists them now and then.
func (r *Received) add(w contract.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set.Add(w)
	if len(set) > contract.MaxUploadRanges-1 { // so that an answer lists all that is missing
		return fmt.Errorf("%w: more than %d pieces", ErrBadRange, contract.MaxUploadRanges-1)
	}
	r.set = set
	r.unsaved += w.Length
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

// End waits for calls of Write, and has later ones, and Save, do nothing but return why.
func (r *Received) End(why error) {
	for i := range r.lanes {
		r.lanes[i].Lock()
		defer r.lanes[i].Unlock()
	}
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
