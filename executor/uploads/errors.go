package uploads

import "errors"

// Errors of this package. Those of executor/files are passed on.
var (
	ErrNoUpload  = errors.New("no such upload")
	ErrBadUpload = errors.New("invalid upload")
	// ErrDigest means that all bytes of a file arrived and do not match its SHA-256.
	ErrDigest = errors.New("the received bytes do not match the SHA-256")
	// ErrTaken means that the target is not the file that the upload may replace.
	ErrTaken = errors.New("a different file is there, and the upload may not replace it")
)
