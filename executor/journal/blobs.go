package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

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

// openBlobs opens the store that an earlier executor left in dir. Files of releases that
// named them by SHA-256 only count: no number refers to them.
func openBlobs(dir string, limit int64) *blobStore {
	b := &blobStore{dir: dir, limit: limit}
	names, _ := os.ReadDir(b.folder())
	for _, name := range names {
		if info, err := name.Info(); err == nil {
			b.used += info.Size()
		}
		if n, err := strconv.Atoi(name.Name()); err == nil {
			b.last = max(b.last, n)
		}
	}
	return b
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
