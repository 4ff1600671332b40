package contract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Limits of file transfers. The executor enforces them.
const (
	MaxFilePart     = 8 << 20 // bytes of one part, in either direction
	MaxUploads      = 64      // uncommitted uploads at the same time; the least recently used one is dropped
	MaxUploadRanges = 1000    // in Upload.Missing
	// MaxUploadVersion bounds UploadStart.Version, in bytes.
	MaxUploadVersion = 64
)

// FileStat is the answer of PathStat: one file or folder. Links are followed.
type FileStat struct {
	File
	// ETag changes whenever the bytes may have changed. Only regular files have one.
	ETag string `json:"etag"`
	// SHA256 of the whole file in lower-case hex, if digest=1 was requested. It is empty if hashing has
	// not finished after wait_seconds: the next request continues.
	SHA256 string `json:"sha256,omitempty"`
}

// UploadStart is the body of POST PathUploads. An equal one, but for SHA256, is about the same upload:
// the answer says which bytes are missing. With the SHA256, the executor verifies the file once none
// is, and gives it its name. If that takes longer than wait_seconds, the next request continues. With
// it, no upload is started.
//
// A Path that ends in a slash, without size and version, is a folder to be created with its
// parents. The answer is committed and has no UploadID, even if the folder exists already.
type UploadStart struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	// Version is any text of 1 to MaxUploadVersion bytes that the sender changes when its
	// file has changed. A wrong one does no harm: the SHA-256 at the commit decides.
	Version string `json:"version"`
	// Source names the sender's file, in at most MaxUploadVersion bytes. A start with another
	// Version of the same Source and Path ends the earlier upload, which nobody can resume.
	Source string `json:"source,omitempty"`
	// Overwrite replaces another file at Path.
	Overwrite bool `json:"overwrite,omitempty"`
	// Replaces is the SHA-256 of the only file that the upload may replace. With ReplaceNothing,
	// and without Overwrite and Replaces, there is none. If another one has the name at the commit, the commit is refused with
	// CodeConflict, unless that file has the uploaded content already.
	Replaces string `json:"replaces,omitempty"`
	SHA256   string `json:"sha256,omitempty"` // of the whole file, lower-case hex
}

// ReplaceNothing as UploadStart.Replaces means that the upload replaces no file.
const ReplaceNothing = "nothing"

// UploadStatus is the state of an upload.
type UploadStatus string

// Statuses of an upload.
const (
	UploadReceiving UploadStatus = "receiving"
	UploadHashing   UploadStatus = "hashing"   // the received bytes are being verified
	UploadCommitted UploadStatus = "committed" // the file has its name
)

// Upload is the answer of POST PathUploads.
type Upload struct {
	UploadID string       `json:"upload_id"`
	Status   UploadStatus `json:"status"`
	Path     string       `json:"path"`           // as requested; once committed, where the file is
	Missing  []Range      `json:"missing"`        // bytes that have not arrived, in order
	ETag     string       `json:"etag,omitempty"` // of the file, once committed
}

// Limits of requests about many files. The executor enforces them. Without them, one
// request could occupy the executor for any time, or have an answer that no relay reads.
const (
	MaxManifestFiles = 10_000  // files in one comparison
	MaxBatchFiles    = 1000    // files and folders in one batch, in either direction
	MaxBatchFile     = 1 << 20 // bytes of one file in a batch; larger ones are sent in parts
	MaxBatchRead     = 4 << 20 // bytes of all files in a batch of a download
)

// Manifest names files below one folder of the VM. It is the body of POST PathCompare
// and the index of POST PathUploadBatch.
type Manifest struct {
	Path string `json:"path"` // the folder
	// Overwrite is as in UploadStart.
	Overwrite bool           `json:"overwrite,omitempty"`
	Files     []ManifestFile `json:"files"`
}

// ManifestFile is one file. In a batch, a Name that ends in a slash, without size and
// SHA256, is a folder to be created, and an Executable one without them a file that is there
// already and is to be made executable.
type ManifestFile struct {
	Name      string `json:"name"` // path below the manifest's Path, with slashes
	SizeBytes int64  `json:"size_bytes"`
	// SHA256 is optional in a comparison. Without it, a file of this size is StateUnknown, and its
	// digest is in the answer.
	SHA256     string `json:"sha256,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	// ETag is the etag of these bytes in an earlier answer. If it is unchanged, the file is
	// not read.
	ETag string `json:"etag,omitempty"`
	// Replaces is as in UploadStart. A comparison then answers StateTaken for a file that an
	// upload would not replace.
	Replaces string `json:"replaces,omitempty"`
}

// Comparison is the answer of PathCompare. It covers at least one of the manifest's files,
// in order. If comparing takes too long, the rest must be requested again.
type Comparison struct {
	Files []Compared `json:"files"`
}

// Compared is the state of one file on the VM.
type Compared struct {
	State CompareState `json:"state"`
	Path  string       `json:"path,omitempty"` // where the file is, if it is the same
	ETag  string       `json:"etag,omitempty"` // of the file, if it is the same
	// SHA256 is the digest of a file that is StateUnknown, if it is known already.
	SHA256 string `json:"sha256,omitempty"`
}

// CompareState is whether the VM has a file.
type CompareState string

// States of a compared file.
const (
	StateSame    CompareState = "same"    // the VM has the same bytes
	StateAbsent  CompareState = "absent"  // the VM does not have them
	StateTaken   CompareState = "taken"   // the VM has other bytes there than those in Replaces
	StateUnknown CompareState = "unknown" // the file is too large to be hashed in this request, or the manifest has no SHA256
)

// BatchAnswer is the answer of PathUploadBatch: one entry for each file of the manifest, in
// order. The same batch again has the same answer unless the files were changed.
type BatchAnswer struct {
	Files []BatchedFile `json:"files"`
}

// BatchedFile is one stored file, or an Error.
type BatchedFile struct {
	Path  string `json:"path,omitempty"`
	ETag  string `json:"etag,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// ReadBatch is the body of POST PathContents: at most MaxBatchFiles small files to be read.
type ReadBatch struct {
	Paths []string `json:"paths"`
}

// Contents is the index of the batch that answers PathContents. It covers at least one of
// the paths, in order. The rest must be requested again.
type Contents struct {
	Files []Content `json:"files"`
}

// Content is one file, or the Error of reading it: CodeTooLarge if it exceeds MaxBatchFile,
// CodeChanged if it changed while it was read. A file with an Error has no bytes in the
// batch.
type Content struct {
	SizeBytes int64     `json:"size_bytes"`
	ETag      string    `json:"etag,omitempty"`
	Modified  time.Time `json:"modified"`
	Error     *Error    `json:"error,omitempty"`
}

// A batch is the bytes of its files, then its index as JSON, then the length of the index
// as four bytes in big-endian order.
const batchTail = 4

// errNoBatch is a body that does not have the form of a batch.
var errNoBatch = errors.New("not a batch of files")

// AppendIndex appends the index to the bytes of the files, which makes a batch.
func AppendIndex(files []byte, index any) ([]byte, error) {
	text, err := json.Marshal(index)
	if err != nil {
		return nil, fmt.Errorf("writing the index of a batch: %w", err)
	}
	return binary.BigEndian.AppendUint32(append(files, text...), uint32(len(text))), nil
}

// SplitBatch splits a batch into the bytes of the files and the index, which it does not
// parse.
func SplitBatch(body []byte) (files, index []byte, err error) {
	if len(body) < batchTail {
		return nil, nil, errNoBatch
	}
	rest := body[:len(body)-batchTail]
	length := binary.BigEndian.Uint32(body[len(rest):])
	if uint64(length) > uint64(len(rest)) {
		return nil, nil, errNoBatch
	}
	at := len(rest) - int(length)
	return rest[:at], rest[at:], nil
}
