package line

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/memory"
	"colabrelay/shared/seal"
)

// SetQuery seals query, without its "?", into req, whose method and path must be set.
func SetQuery(x *auth.Exchange, req *http.Request, query string) {
	if query == "" {
		return
	}
	sealed := seal.SealMessage(x.QueryKey(req.Method, req.URL.EscapedPath()), []byte(query))
	req.URL.RawQuery = queryPrefix + base64.RawURLEncoding.EncodeToString(sealed)
}

// queryPrefix is the name of the one parameter of every query.
const queryPrefix = "s="

// SetMessage seals text as the body of req.
func SetMessage(x *auth.Exchange, req *http.Request, text []byte) {
	sealed := seal.SealMessage(x.BodyKey(), text)
	setBody(req, int64(len(sealed)), func() io.Reader { return bytes.NewReader(sealed) })
}

// SetPart makes the part of a file that open returns the body of req: length bytes. open is
// called for each time that the transport sends the body. The part is read and sealed while
// it is sent. If it has fewer bytes, the body ends early and the transport fails.
func SetPart(x *auth.Exchange, req *http.Request, length int64, open func() io.Reader) {
	key := x.BodyKey()
	setBody(req, seal.PartSize(length), func() io.Reader { return seal.NewPartSealer(key, open()) })
}

func setBody(req *http.Request, size int64, open func() io.Reader) {
	announceBody(req.Header)
	req.ContentLength = size
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(open()), nil }
	req.Body, _ = req.GetBody()
}

// OpenAnswer reads the body of an answer whose head is verified and returns its text: at most
// max bytes, sealed and opened, or bounded.ErrTooLong. Nothing of a body that was cut or
// changed is returned. A large one waits for its turns (package memory), which the Holding of
// the request's context keeps if there is one.
func OpenAnswer(x *auth.Exchange, res *http.Response, body io.Reader, max int64) (text []byte, err error) {
	if !hasBody(res.Header) {
		return nil, checkEmpty(body)
	}
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
	announced := res.ContentLength
	if announced > memory.Small && announced <= max {
		announced = -1 // it takes memory as it arrives
	}
	sealed, err := readAll(&arriving{body, memory.Small, ctx, held}, announced, max)
	if err != nil {
		return nil, err
	}
	return seal.OpenMessageIn(x.AnswerKey(), sealed, max, func(bytes int64) error {
		if bytes <= memory.Small {
			return nil
		}
		return held.Take(ctx, memory.Decoding)
	})
}

// AnswerPart returns a reader of the part of a file in an answer whose head is verified. What
// it yields before an error is authentic.
func AnswerPart(x *auth.Exchange, res *http.Response, body io.Reader) (io.Reader, error) {
	if !hasBody(res.Header) {
		return nil, seal.ErrInvalid
	}
	return seal.NewPartOpener(x.AnswerKey(), body), nil
}

// arriving is a body that takes a turn before more than left bytes of it are read.
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

// readAll reads body up to its end, which is at most max bytes away. It takes memory for the
// announced length at once, and for more only as it arrives.
func readAll(body io.Reader, announced, max int64) ([]byte, error) {
	if announced > max {
		return nil, bounded.ErrTooLong
	}
	if announced < 0 || announced > maxAtOnce {
		return bounded.ReadAll(body, max)
	}
	into := bytes.NewBuffer(make([]byte, 0, announced+bytes.MinRead))
	if _, err := into.ReadFrom(io.LimitReader(body, max+1)); err != nil {
		return nil, err
	}
	if int64(into.Len()) > max {
		return nil, bounded.ErrTooLong
	}
	return into.Bytes(), nil
}

// maxAtOnce is up to which size an announced body gets its memory before it arrives.
const maxAtOnce = 1 << 20
