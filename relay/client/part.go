package client

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
)

// contentBytes is the media type of a part of a file.
const contentBytes = "application/octet-stream"

// isPart reports whether an answer looks like an uncompressed part of a file. It only decides
// where the body is read to.
func isPart(res *http.Response) bool {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && kind == contentBytes && res.StatusCode == http.StatusOK &&
		res.Header.Get("Content-Encoding") == encodingPlain
}

// prefix returns how many bytes of an interrupted answer may be returned as unverified: those
// of a part of a file whose head the executor signed for this request. So a tunnel's error
// page, or the body of another answer, is never mistaken for a part.
func (c *Client) prefix(res *http.Response, raw, into []byte, signature string) int {
	if res == nil || into == nil || !isPart(res) || res.ContentLength < int64(len(raw)) || res.ContentLength > int64(len(into)) {
		return 0
	}
	if err := c.signer.VerifyResponse(res, raw, signature); !errors.Is(err, auth.ErrDigest) {
		return 0
	}
	return len(raw)
}

// unpackPart decompresses the part in a signed answer into into, which contains an
// uncompressed one already.
func unpackPart(res *http.Response, raw, into []byte) ([]byte, error) {
	if isPart(res) {
		return raw, nil
	}
	if encoding := res.Header.Get("Content-Encoding"); encoding != encodingGzip {
		return nil, fmt.Errorf("not a part of a file: type %s, encoding %q", contentType(res), encoding)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	n, err := fill(into, z)
	return into[:n], err
}

// fill reads r into into up to its end. It fails with bounded.ErrTooLong if there are more
// than len(into) bytes.
func fill(into []byte, r io.Reader) (n int, err error) {
	for n < len(into) {
		k, err := r.Read(into[n:])
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		if err == nil {
			err = bounded.ErrTooLong
		}
		return n, err
	}
	return n, nil
}
