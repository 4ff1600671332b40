package contract

// Bounds of file transfer. The executor enforces them.
const (
	MaxFilePart     = 8 << 20 // bytes of one content answer, or of one part put
	MaxUploads      = 64      // uploads not committed at once; the one untouched longest goes first
	MaxUploadRanges = 1000    // in Upload.Missing; the rest comes with a later answer
)

// FileStat is the answer of PathStat: one file or folder, links followed.
type FileStat struct {
	File
	// ETag changes whenever the bytes may have; empty for what is no regular file.
	ETag string `json:"etag"`
	// SHA256 of the whole file in lower-case hex, when it was asked for by digest=1
	// and is known; Hashing says how far it is otherwise.
	SHA256  string   `json:"sha256,omitempty"`
	Hashing *Hashing `json:"hashing,omitempty"`
}

// Hashing is a digest being computed in the background; asking again with
// wait_seconds waits for it.
type Hashing struct {
	HashedBytes int64 `json:"hashed_bytes"`
	TotalBytes  int64 `json:"total_bytes"`
}

// UploadStart is the body of POST PathUploads. The same one again gives the same
// upload with what it received so far: that is how an upload is resumed.
//
// A Path that ends in a slash, with neither size nor SHA256, is a folder to be made
// with those above it. The answer is committed at once, without UploadID, and the
// same for a folder that is there already.
type UploadStart struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"` // of the whole file, lower-case hex
	// Overwrite replaces another file at Path; without it the upload takes the
	// first free name of the form "name (1).ext".
	Overwrite bool `json:"overwrite,omitempty"`
}

// UploadStatus is where an upload stands.
type UploadStatus string

// Statuses of an upload.
const (
	UploadReceiving UploadStatus = "receiving"
	UploadHashing   UploadStatus = "hashing"   // commit was asked for; the whole is being checked
	UploadCommitted UploadStatus = "committed" // the file is in its place
)

// Upload is the answer of every request about one upload.
type Upload struct {
	UploadID      string       `json:"upload_id"`
	Status        UploadStatus `json:"status"`
	Path          string       `json:"path"` // as asked for; once committed, where the file is
	SizeBytes     int64        `json:"size_bytes"`
	SHA256        string       `json:"sha256"`
	ReceivedBytes int64        `json:"received_bytes"`
	Missing       []Range      `json:"missing"` // what has not arrived, in order, at most MaxUploadRanges
	Hashing       *Hashing     `json:"hashing,omitempty"`
	ETag          string       `json:"etag,omitempty"` // of the file, once committed
}

// Range is a piece of a file.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}
