// Package line carries one request and its answer over a tunnel that nobody trusts: it seals
// query and bodies with the keys of an exchange (shared/auth) in the form of shared/seal, and
// opens them on the other side. It defines where sealed bytes are in HTTP messages.
//
// A query is one parameter, ?s=<unpadded base64url of its sealed text>. A body with
// Content-Encoding: aes128gcm is sealed. A message without that header has no body.
//
// It must not decide who may do what, retry, or wait.
package line

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
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

// opened returns a reader of the text of a body, sealed with key if sealed is set: at most
// seal.Size(most) bytes of it, or bounded.ErrTooLong. What it yields before an error is authentic.
func opened(sealed bool, key func() seal.Key, body io.Reader, most int64) io.Reader {
	if !sealed {
		return noBody{body}
	}
	return seal.NewOpener(key(), &atMost{body, seal.Size(most)})
}

// noBody is the body of a message that has none.
type noBody struct{ io.Reader }

func (b noBody) Read([]byte) (int, error) {
	var one [1]byte
	n, err := io.ReadFull(b.Reader, one[:])
	if n > 0 {
		err = ErrUnexpectedBody
	}
	return 0, err
}

// atMost is a reader of at most left bytes.
type atMost struct {
	io.Reader
	left int64
}

func (r *atMost) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, bounded.ErrTooLong
	}
	return n, err
}

// Unopened reports whether err means that sealed bytes did not open: they were changed or cut,
// are for another request, or were sealed with another key.
func Unopened(err error) bool {
	return errors.Is(err, seal.ErrInvalid) || errors.Is(err, seal.ErrCut) || errors.Is(err, ErrUnexpectedBody)
}

// contentLength is the header's value of n.
func contentLength(n int64) []string { return []string{strconv.FormatInt(n, 10)} }

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
	key := x.QueryKey(r.Method, r.URL.EscapedPath())
	text, err := bounded.ReadAll(seal.NewOpener(key, bytes.NewReader(sealed)), maxQuery)
	if err != nil {
		return err
	}
	r.URL.RawQuery = string(text)
	return nil
}

// RequestBody returns a reader of the text of the body of r, whose signature is verified: at
// most seal.Size(most) bytes of it are read, sealed. What it yields before an error is authentic.
func RequestBody(x *auth.Exchange, r *http.Request, body io.Reader, most int64) io.Reader {
	return opened(hasBody(r.Header), x.BodyKey, body, most)
}

// AnswerBody is RequestBody for an answer whose head is verified.
func AnswerBody(x *auth.Exchange, res *http.Response, body io.Reader, most int64) io.Reader {
	return opened(hasBody(res.Header), x.AnswerKey, body, most)
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
	sealed := seal.Seal(x.AnswerKey(), text)
	h["Content-Length"] = contentLength(int64(len(sealed)))
	return sealed, nil
}

// SealPart is SealAnswer for the part of a file in src, which must yield length bytes. It is
// sealed while the reader is read.
func SealPart(x *auth.Exchange, h http.Header, status int, created time.Time, src io.Reader, length int64) (io.Reader, error) {
	announceBody(h)
	h["Content-Length"] = contentLength(seal.Size(length))
	if err := x.SignAnswer(h, status, created); err != nil {
		return nil, err
	}
	return seal.NewSealer(x.AnswerKey(), src), nil
}

// SetQuery seals query, without its "?", into req, whose method and path must be set.
func SetQuery(x *auth.Exchange, req *http.Request, query string) {
	if query == "" {
		return
	}
	sealed := seal.Seal(x.QueryKey(req.Method, req.URL.EscapedPath()), []byte(query))
	req.URL.RawQuery = queryPrefix + base64.RawURLEncoding.EncodeToString(sealed)
}

// queryPrefix is the name of the one parameter of every query.
const queryPrefix = "s="

// SetMessage seals text as the body of req.
func SetMessage(x *auth.Exchange, req *http.Request, text []byte) {
	sealed := seal.Seal(x.BodyKey(), text)
	setBody(req, int64(len(sealed)), func() io.Reader { return bytes.NewReader(sealed) })
}

// SetPart makes the part of a file that open returns the body of req: length bytes. open is
// called for each time that the transport sends the body. The part is read and sealed while
// it is sent. If it has fewer bytes, the body ends early and the transport fails.
func SetPart(x *auth.Exchange, req *http.Request, length int64, open func() io.Reader) {
	key := x.BodyKey()
	setBody(req, seal.Size(length), func() io.Reader { return seal.NewSealer(key, open()) })
}

func setBody(req *http.Request, size int64, open func() io.Reader) {
	announceBody(req.Header)
	req.ContentLength = size
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(open()), nil }
	req.Body, _ = req.GetBody()
}

// OpenAnswer reads the body of an answer whose head is verified and returns its text: at most
// max bytes, or bounded.ErrTooLong. Nothing of a body that was cut or changed is returned. A
// large one waits for its turns (package memory), which the Holding of the request's context
// keeps if there is one.
func OpenAnswer(x *auth.Exchange, res *http.Response, body io.Reader, max int64) (text []byte, err error) {
	ctx := context.Background()
	if res.Request != nil {
		ctx = res.Request.Context()
	}
	held, own := memory.Of(ctx)
	held.Done() // an earlier attempt's answer is not needed any more
	defer func() {
		if own || err != nil {
			held.Done()
		}
	}()
	text, err = bounded.ReadAll(&arriving{AnswerBody(x, res, body, max), memory.Small, ctx, held}, max)
	if err == nil && len(text) > memory.Small {
		err = held.Take(ctx, memory.Decoding)
	}
	return text, err
}

// arriving is a text that takes a turn before more than left bytes of it are read.
type arriving struct {
	io.Reader
	left int64
	ctx  context.Context // of the one read that this is
	held *memory.Holding
}

// Read implements io.Reader.
func (a *arriving) Read(p []byte) (int, error) {
	if a.left <= 0 {
		if err := a.held.Take(a.ctx, memory.Arriving); err != nil {
			return 0, err
		}
	}
	n, err := a.Reader.Read(p)
	a.left -= int64(n)
	return n, err
}
