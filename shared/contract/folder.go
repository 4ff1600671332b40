package contract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Bounds of requests about many files at once. The executor enforces them. Without
// them one request could hold the executor for as long as it likes, or make an answer
// that no relay reads.
const (
	MaxManifestFiles = 10_000  // files that one request compares
	MaxBatchFiles    = 1000    // files and folders that one batch carries, either way
	MaxBatchFile     = 1 << 20 // bytes of one file in a batch; a larger one goes in parts
	MaxBatchRead     = 4 << 20 // bytes of all files in a batch that is read
)

// Manifest names files below one folder of the VM. It is the body of POST PathCompare
// and the index of POST PathUploadBatch.
type Manifest struct {
	Path string `json:"path"` // the folder
	// Overwrite means what UploadStart has it mean: without it, "name (1).ext" and so
	// on are names of the file as well.
	Overwrite bool           `json:"overwrite,omitempty"`
	Files     []ManifestFile `json:"files"`
}

// ManifestFile is one file. In a batch, a Name that ends in a slash, with neither size
// nor SHA256, is a folder to be made.
type ManifestFile struct {
	Name      string `json:"name"` // below the manifest's Path, with slashes
	SizeBytes int64  `json:"size_bytes"`
	// SHA256 may be left out of a comparison: then a file of this size is StateUnknown.
	SHA256 string `json:"sha256,omitempty"`
	// ETag is what an earlier answer gave for these very bytes. Where it still holds,
	// nothing is read.
	ETag string `json:"etag,omitempty"`
}

// Comparison is the answer of PathCompare, of the manifest's first files in order: at
// least of one. The rest is to be asked for again, as reading them would take long.
type Comparison struct {
	Files []Compared `json:"files"`
}

// Compared is what the VM has of one file.
type Compared struct {
	State CompareState `json:"state"`
	Path  string       `json:"path,omitempty"` // where the same file is
	ETag  string       `json:"etag,omitempty"` // of the same file
}

// CompareState says whether the VM has a file.
type CompareState string

// States of a compared file.
const (
	StateSame    CompareState = "same"    // its bytes are there
	StateAbsent  CompareState = "absent"  // they surely are not
	StateUnknown CompareState = "unknown" // too large to be read at once, or without a SHA256: ask PathStat
)

// BatchAnswer is the answer of PathUploadBatch: one entry for each of the manifest, in
// order. The same batch again gives the same answer as long as nobody touched the files.
type BatchAnswer struct {
	Files []BatchedFile `json:"files"`
}

// BatchedFile is what became of one file: in its place, or an Error.
type BatchedFile struct {
	Path  string `json:"path,omitempty"`
	ETag  string `json:"etag,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// ReadBatch is the body of POST PathContents: many small files to be read at once, at
// most MaxBatchFiles.
type ReadBatch struct {
	Paths []string `json:"paths"`
}

// Contents is the index of the batch that answers PathContents. It is of the first
// paths in order, at least of one; the rest is to be asked for again.
type Contents struct {
	Files []Content `json:"files"`
}

// Content is one whole file, or the Error that it could not be read with: CodeTooLarge
// past MaxBatchFile, CodeChanged where it changed while it was read. A file with an
// Error has no bytes in the batch.
type Content struct {
	SizeBytes int64     `json:"size_bytes"`
	ETag      string    `json:"etag,omitempty"`
	Modified  time.Time `json:"modified"`
	Error     *Error    `json:"error,omitempty"`
}

// A batch is the bytes of its files one after the other, then its index, which is JSON,
// then the index's length as four bytes, the highest first.
const batchTail = 4

// ErrNoBatch is a body that is not laid out as a batch.
var ErrNoBatch = errors.New("not a batch of files")

// AppendIndex makes the files' bytes a batch.
func AppendIndex(files []byte, index any) ([]byte, error) {
	text, err := json.Marshal(index)
	if err != nil {
		return nil, fmt.Errorf("writing the index of a batch: %w", err)
	}
	return binary.BigEndian.AppendUint32(append(files, text...), uint32(len(text))), nil
}

// SplitBatch is AppendIndex undone. The index is not parsed.
func SplitBatch(body []byte) (files, index []byte, err error) {
	if len(body) < batchTail {
		return nil, nil, ErrNoBatch
	}
	rest := body[:len(body)-batchTail]
	length := binary.BigEndian.Uint32(body[len(rest):])
	if uint64(length) > uint64(len(rest)) {
		return nil, nil, ErrNoBatch
	}
	at := len(rest) - int(length)
	return rest[:at], rest[at:], nil
}
