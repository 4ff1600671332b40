package line

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

// MaxSealedBody is how many bytes the body of a request has at most on the wire: a message of
// contract.MaxBodyBytes that does not get shorter by compression.
var MaxSealedBody = seal.Size(contract.MaxBodyBytes + 512)

// OpenQuery replaces the query of r, whose signature is verified, by its text.
func OpenQuery(x *auth.Exchange, r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	encoded, found := strings.CutPrefix(r.URL.RawQuery, queryPrefix)
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !found || err != nil {
		return seal.ErrInvalid
	}
	text, err := seal.OpenMessage(x.QueryKey(r.Method, r.URL.EscapedPath()), sealed, maxQuery)
	if err != nil {
		return err
	}
	r.URL.RawQuery = string(text)
	return nil
}

// OpenBody reads the body of r, whose signature is verified, and returns its text: at most
// contract.MaxBodyBytes, or bounded.ErrTooLong. Nothing of a body that was cut or changed is
// returned.
func OpenBody(x *auth.Exchange, r *http.Request, body io.Reader) ([]byte, error) {
	if !hasBody(r.Header) {
		return nil, checkEmpty(body)
	}
	sealed, err := readAll(body, r.ContentLength, MaxSealedBody)
	if err != nil {
		return nil, err
	}
	return seal.OpenMessage(x.BodyKey(), sealed, contract.MaxBodyBytes)
}

// RequestPart returns a reader of the part of a file in the body of r, whose signature is
// verified. What it yields before an error is authentic.
func RequestPart(x *auth.Exchange, r *http.Request, body io.Reader) (io.Reader, error) {
	if !hasBody(r.Header) {
		return http.NoBody, checkEmpty(body)
	}
	return seal.NewPartOpener(x.BodyKey(), body), nil
}

// SealAnswer signs h, the head of an answer, and returns text sealed as its body. It sets the
// headers that describe the body; h must contain Executor-Instance. An empty text is no body.
func SealAnswer(x *auth.Exchange, h http.Header, status int, created time.Time, text []byte) ([]byte, error) {
	if len(text) == 0 {
		h["Content-Length"] = contentLength(0)
		return nil, x.SignAnswer(h, status, created)
	}
	announceBody(h)
	if err := x.SignAnswer(h, status, created); err != nil {
		return nil, err
	}
	sealed := seal.SealMessage(x.AnswerKey(), text)
	h["Content-Length"] = contentLength(int64(len(sealed)))
	return sealed, nil
}

// SealPart is SealAnswer for the part of a file in src, which must yield length bytes. It is
// sealed while the reader is read.
func SealPart(x *auth.Exchange, h http.Header, status int, created time.Time, src io.Reader, length int64) (io.Reader, error) {
	announceBody(h)
	h["Content-Length"] = contentLength(seal.PartSize(length))
	if err := x.SignAnswer(h, status, created); err != nil {
		return nil, err
	}
	return seal.NewPartSealer(x.AnswerKey(), src), nil
}
