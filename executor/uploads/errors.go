package uploads

import "errors"

// Errors of this package. Those of executor/files are passed on.
var (
	ErrNoUpload  = errors.New("no such upload")
	ErrBadUpload = errors.New("not a usable upload")
	// ErrDigest means that all bytes of an upload arrived and do not match the SHA-256 announced.
	ErrDigest = errors.New("the bytes received are not those announced")
)
