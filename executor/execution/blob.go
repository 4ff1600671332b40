package execution

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// blobStore keeps the MIME payloads of one execution that are too big for an
// event, in a folder made with the first.
type blobStore struct {
	dir   string // the execution's
	limit int64

	mu   sync.Mutex
	used int64
}

// openBlobs is the store that an earlier executor filled.
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

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (b *blobStore) open(digest string) (*os.File, error) {
	if !sha256Pattern.MatchString(digest) {
		return nil, ErrNoBlob
	}
	f, err := os.Open(filepath.Join(b.folder(), digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoBlob
	}
	return f, err
}

var errBlobsFull = errors.New("the execution's room for big payloads is used up")

// put writes a payload under the digest of its decoded form.
func (b *blobStore) put(mime string, raw json.RawMessage) (contract.Blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+int64(len(raw)) > b.limit {
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
	n, err := decodePayload(io.MultiWriter(f, digest), mime, raw)
	if err != nil {
		return contract.Blob{}, err
	}
	name := hex.EncodeToString(digest.Sum(nil))
	if err := os.Rename(f.Name(), filepath.Join(b.folder(), name)); err != nil {
		return contract.Blob{}, err
	}
	b.used += n
	return contract.Blob{SHA256: name, Bytes: n}, nil
}

// decodePayload writes what raw stands for: a string's text, base64 undone
// where the MIME type is binary, any other JSON as it is.
func decodePayload(w io.Writer, mime string, raw json.RawMessage) (int64, error) {
	counted := &countingWriter{w: w}
	if raw[0] != '"' {
		_, err := counted.Write(raw)
		return counted.n, err
	}
	if !isBase64(mime) {
		err := writeText(counted, raw)
		return counted.n, err
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(writeText(write, raw)) }()
	_, err := io.Copy(counted, base64.NewDecoder(base64.StdEncoding, read))
	read.CloseWithError(err)
	return counted.n, err
}

func writeText(w io.Writer, raw json.RawMessage) error {
	var failed error
	err := jupyter.Text(raw, contract.MaxStreamEvent, func(chunk []byte) {
		if failed == nil {
			_, failed = w.Write(chunk)
		}
	})
	return errors.Join(err, failed)
}

// isBase64 is the Jupyter convention for binary payloads in a MIME bundle.
func isBase64(mime string) bool {
	kind, rest, _ := strings.Cut(mime, "/")
	switch kind {
	case "image":
		return rest != "svg+xml"
	case "audio", "video":
		return true
	}
	return mime == "application/pdf" || mime == "application/octet-stream"
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
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
