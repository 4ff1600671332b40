package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"colabrelay/shared/contract"
)

// blobStore keeps the payloads of one execution that are too big for an event, each
// in a file named by its SHA-256.
type blobStore struct {
	dir   string // of the execution
	limit int64

	mu   sync.Mutex
	used int64
}

// openBlobs opens the store that an earlier executor left in dir.
func openBlobs(dir string, limit int64) *blobStore {
	b := &blobStore{dir: dir, limit: limit}
	names, _ := os.ReadDir(b.folder())
	for _, name := range names {
		if info, err := name.Info(); err == nil {
			b.used += info.Size()
		}
	}
	return b
}

func (b *blobStore) folder() string { return filepath.Join(b.dir, "blobs") }

func (b *blobStore) open(digest string) (*os.File, error) {
	if !contract.SHA256Pattern.MatchString(digest) {
		return nil, ErrNoBlob
	}
	f, err := os.Open(filepath.Join(b.folder(), digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoBlob
	}
	return f, err
}

var errBlobsFull = errors.New("the execution has no room left for big payloads")

// put keeps what write writes, at most size bytes, under its digest.
func (b *blobStore) put(size int64, write func(io.Writer) error) (contract.Blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+size > b.limit {
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
	name := hex.EncodeToString(digest.Sum(nil))
	if err := os.Rename(f.Name(), filepath.Join(b.folder(), name)); err != nil {
		return contract.Blob{}, err
	}
	b.used += written
	return contract.Blob{SHA256: name, Bytes: written}, nil
}

func (b *blobStore) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *blobStore) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	os.RemoveAll(b.folder())
	b.used = 0
}
