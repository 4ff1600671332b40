// Package line carries one request and its answer over a tunnel that nobody trusts: it seals
// query and bodies with the keys of an exchange (shared/auth) in the form of shared/seal, and
// opens them on the other side. It defines where sealed bytes are in HTTP messages.
//
// A query is one parameter, ?s=<unpadded base64url of a sealed message>. A body with
// Content-Encoding: aes128gcm is a sealed message or a sealed part of a file; the endpoint
// determines which. A message without that header has no body.
//
// It must not decide who may do what, retry, or wait. relay.go is the relay's side,
// executor.go the executor's.
package line

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

// mediaType is the Content-Type of every sealed body. It tells nothing.
const mediaType = "application/octet-stream"

// ErrUnexpectedBody is a body in a message whose signature says that it has none.
var ErrUnexpectedBody = errors.New("body of a message that has none")

// maxQuery bounds the text of a query in bytes, compressed in at most contract.MaxHeaderBytes.
const maxQuery = 4 * contract.MaxHeaderBytes

// hasBody reports whether h announces a sealed body. auth has verified the header.
func hasBody(h http.Header) bool { return len(h[auth.HeaderContentEncoding]) > 0 }

func announceBody(h http.Header) {
	h[auth.HeaderContentEncoding] = []string{auth.Encoding}
	h["Content-Type"] = []string{mediaType}
}

// checkEmpty returns ErrUnexpectedBody if body has a byte.
func checkEmpty(body io.Reader) error {
	var b [1]byte
	switch n, err := io.ReadFull(body, b[:]); {
	case n > 0:
		return ErrUnexpectedBody
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// Unopened reports whether err means that sealed bytes did not open: they were changed or cut,
// are for another request, or were sealed with another key.
func Unopened(err error) bool {
	return errors.Is(err, seal.ErrInvalid) || errors.Is(err, seal.ErrCut) || errors.Is(err, ErrUnexpectedBody)
}

// contentLength is the header's value of n.
func contentLength(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
