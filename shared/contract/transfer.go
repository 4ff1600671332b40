package contract

// Limits of file transfers. The executor enforces them.
const (
	MaxFilePart     = 8 << 20 // bytes of one part, in either direction
	MaxUploads      = 64      // uncommitted uploads at the same time; the least recently used one is dropped
	MaxUploadRanges = 1000    // in Upload.Missing; later answers have the rest
	// MaxUploadVersion bounds UploadStart.Version, in bytes.
	MaxUploadVersion = 64
)

// FileStat is the answer of PathStat: one file or folder. Links are followed.
type FileStat struct {
	File
	// ETag changes whenever the bytes may have changed. Only regular files have one.
	ETag string `json:"etag"`
	// SHA256 of the whole file in lower-case hex, if digest=1 was requested and hashing has
	// finished. Otherwise Hashing is the progress.
	SHA256  string   `json:"sha256,omitempty"`
	Hashing *Hashing `json:"hashing,omitempty"`
}

// Hashing is the progress of a digest that is computed in the background. A request with
// wait_seconds waits for the digest.
type Hashing struct {
	HashedBytes int64 `json:"hashed_bytes"`
	TotalBytes  int64 `json:"total_bytes"`
}

// UploadStart is the body of POST PathUploads. An equal body resumes the same upload with
// the bytes received so far.
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
}

// ReplaceNothing as UploadStart.Replaces means that the upload replaces no file.
const ReplaceNothing = "nothing"

// UploadCommit is the body of POST PathUploadCommit.
type UploadCommit struct {
	SHA256 string `json:"sha256"` // of the whole file, lower-case hex
}

// UploadStatus is the state of an upload.
type UploadStatus string

// Statuses of an upload.
const (
	UploadReceiving UploadStatus = "receiving"
	UploadHashing   UploadStatus = "hashing"   // a commit was requested; the received bytes are being verified
	UploadCommitted UploadStatus = "committed" // the file has its name
)

// Upload is the answer of every request about one upload.
type Upload struct {
	UploadID      string       `json:"upload_id"`
	Status        UploadStatus `json:"status"`
	Path          string       `json:"path"` // as requested; once committed, where the file is
	SizeBytes     int64        `json:"size_bytes"`
	SHA256        string       `json:"sha256,omitempty"` // of the file, once committed
	ReceivedBytes int64        `json:"received_bytes"`
	Missing       []Range      `json:"missing"` // bytes that have not arrived, in order, at most MaxUploadRanges ranges
	Hashing       *Hashing     `json:"hashing,omitempty"`
	ETag          string       `json:"etag,omitempty"` // of the file, once committed
}

// Range is a range of bytes of a file.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// End is the offset after the last byte of r.
func (r Range) End() int64 { return r.Offset + r.Length }

// After is r without its first n bytes.
func (r Range) After(n int64) Range { return Range{Offset: r.Offset + n, Length: r.Length - n} }
