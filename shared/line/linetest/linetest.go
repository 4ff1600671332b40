// Package linetest lets tests play one side of the sealed line: an Executor that answers a
// real relay, and the functions with which a relay seals requests and opens answers.
//
// It must not be linked into either program.
package linetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
)

// Executor opens requests and seals answers as an executor does.
type Executor struct {
	Instance contract.Instance
	verifier *auth.Verifier
	now      func() time.Time
}

// NewExecutor returns an Executor with a clock.
func NewExecutor(secret auth.Secret, instance contract.Instance, now func() time.Time) *Executor {
	return &Executor{Instance: instance, verifier: auth.NewVerifier(secret, instance, now), now: now}
}

// Open verifies r, replaces its query by the text of the query, and returns the text of its
// body, also of a request that is refused for its time, instance or nonce. A part of a file
// that was cut is returned as far as it arrived, with the error. The exchange is nil if r is
// an unsigned GET /health, which is allowed, or if the error is auth.ErrUnauthorized.
func (e *Executor) Open(r *http.Request) (x *auth.Exchange, body []byte, err error) {
	if r.URL.Path == contract.PathHealth && r.Header.Get(auth.HeaderSignature) == "" {
		return nil, nil, nil
	}
	x, refused := e.verifier.Verify(r)
	if x == nil {
		return nil, nil, refused
	}
	if err := line.OpenQuery(x, r); err != nil {
		return x, nil, err
	}
	most := int64(contract.MaxBodyBytes)
	if r.Method == http.MethodPut {
		most = contract.MaxFilePart
	}
	opened := line.RequestBody(x, r, r.Body, most)
	if body, err = io.ReadAll(io.LimitReader(opened, most+1)); int64(len(body)) > most {
		body, err = nil, bounded.ErrTooLong
	}
	return x, body, cmp.Or(refused, err)
}

// Reply answers r with v: bytes unchanged, an error as a refusal, everything else as JSON.
// Bytes that answer a read of a file are a part of it. Without an exchange the answer is
// neither sealed nor signed. Status 0 is the usual one.
func (e *Executor) Reply(w http.ResponseWriter, r *http.Request, x *auth.Exchange, status int, v any) {
	if err, is := v.(error); is {
		v = contract.ErrorBody{Error: e.refusal(err)}
		status = cmp.Or(status, http.StatusConflict)
		if errors.Is(err, auth.ErrUnauthorized) {
			status = http.StatusUnauthorized
		}
	}
	status = cmp.Or(status, http.StatusOK)
	text, isRaw := v.([]byte)
	if !isRaw {
		text, _ = json.Marshal(v)
	}
	switch {
	case x == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(text)
	case isRaw && status == http.StatusOK && r.URL.Path == contract.PathContent:
		e.AnswerPart(w, x, bytes.NewReader(text), int64(len(text)))
	default:
		e.Answer(w, x, status, text)
	}
}

// refusal returns the contract's error for err.
func (e *Executor) refusal(err error) contract.Error {
	var refused *contract.Error
	if errors.As(err, &refused) {
		return *refused
	}
	out := contract.Error{Code: contract.CodeInternal, Message: err.Error(), ServerTime: e.now().Unix()}
	for known, code := range map[error]contract.Code{
		auth.ErrUnauthorized: contract.CodeUnauthorized, auth.ErrClockSkew: contract.CodeClockSkew, auth.ErrReplayed: contract.CodeReplayed,
		auth.ErrNewInstance: contract.CodeNewInstance, auth.ErrNewStart: contract.CodeNewStart,
	} {
		if errors.Is(err, known) {
			out.Code = code
		}
	}
	return out
}

// Answer seals, signs and sends text.
func (e *Executor) Answer(w http.ResponseWriter, x *auth.Exchange, status int, text []byte) {
	w.Header().Set(contract.HeaderInstance, e.Instance.String())
	sealed, err := line.SealAnswer(x, w.Header(), status, e.now(), text)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(status)
	_, _ = w.Write(sealed)
}

// AnswerPart seals, signs and sends a part of a file.
func (e *Executor) AnswerPart(w http.ResponseWriter, x *auth.Exchange, part io.Reader, length int64) {
	w.Header().Set(contract.HeaderInstance, e.Instance.String())
	sealed, err := line.SealPart(x, w.Header(), http.StatusOK, e.now(), part, length)
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(w, sealed)
}

// Seal seals the query and the text of the body into req and signs it, as a relay does. A
// body of a PUT is a part of a file; nil is none.
func Seal(t testing.TB, secret auth.Secret, req *http.Request, text []byte, created time.Time) *auth.Exchange {
	t.Helper()
	x := auth.NewSigner(secret).NewExchange()
	SealWith(t, x, req, text, created)
	return x
}

// SealWith is Seal with an exchange of the caller.
func SealWith(t testing.TB, x *auth.Exchange, req *http.Request, text []byte, created time.Time) {
	t.Helper()
	query := req.URL.RawQuery
	req.URL.RawQuery = ""
	line.SetQuery(x, req, query)
	switch {
	case len(text) == 0:
		req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0
	case req.Method == http.MethodPut:
		line.SetPart(x, req, int64(len(text)), func() io.Reader { return bytes.NewReader(text) })
	default:
		line.SetMessage(x, req, text)
	}
	if err := x.SignRequest(req, created); err != nil {
		t.Fatal(err)
	}
}

// Open verifies an answer and returns the text of its body. part tells how it is sealed.
func Open(x *auth.Exchange, res *http.Response, body io.Reader, part bool) ([]byte, error) {
	if err := x.VerifyAnswer(res); err != nil {
		return nil, err
	}
	if !part || res.StatusCode != http.StatusOK {
		return line.OpenAnswer(x, res, body, 64<<20)
	}
	return io.ReadAll(line.AnswerBody(x, res, body, 64<<20))
}
