package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

type bodyKey struct{}

// receivedBody is a request's body as handlers get it. Its memory is reused after the
// request is answered.
type receivedBody struct {
	bytes []byte // decompressed; they match the digest unless cut is set
	// cut means that the body ended early: bytes are its beginning, which no digest
	// verifies. Only handlers of PUT receive such a body.
	cut bool
}

var (
	errBodyTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("request body is over %d MiB", contract.MaxBodyBytes>>20),
		Hint:    "Send less code in one run. Put data into a file.",
	}
	errPartTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("part is over %d MiB", contract.MaxFilePart>>20),
		Hint:    "Send the file in smaller parts.",
	}
	errCutBody = badRequest("request body ended early")
)

// boundUnread limits the time for a body that no handler reads, because the request is not
// authorized, to headerTimeout. net/http discards such a body before it answers, so a body
// that never arrives would keep the connection for ever.
func (a *API) boundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) // readBody sets its own
		}
		next.ServeHTTP(w, r)
	})
}

// decodeBody reads the whole body up to its bound, compares the received bytes with their
// digest, and only then decompresses them, up to the same bound.
func (a *API) decodeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > contract.MaxBodyBytes {
			a.refuse(w, r, tooLarge(r))
			return
		}
		into := newBuffer(int(max(r.ContentLength, 0)))
		defer recycle(into)
		body, err := a.receive(w, r, into)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, body)))
	})
}

func (a *API) receive(w http.ResponseWriter, r *http.Request, into *bytes.Buffer) (receivedBody, error) {
	err := a.readBody(w, r, into)
	if err == errCutBody && usableCut(r) {
		return receivedBody{bytes: into.Bytes(), cut: true}, nil
	}
	if err != nil {
		return receivedBody{}, err
	}
	if err := auth.VerifyDigest(r.Header, into.Bytes()); err != nil {
		return receivedBody{}, err
	}
	plain, err := decompress(r.Header.Get("Content-Encoding"), into.Bytes())
	if err == errBodyTooLarge {
		err = tooLarge(r)
	}
	return receivedBody{bytes: plain}, err
}

// usableCut reports whether the beginning of a body is useful: it is if the body is an
// uncompressed part of a file.
func usableCut(r *http.Request) bool {
	return r.Method == http.MethodPut && r.Header.Get("Content-Encoding") == ""
}

func (a *API) readBody(w http.ResponseWriter, r *http.Request, into *bytes.Buffer) error {
	if r.ContentLength == 0 {
		return nil
	}
	conn := http.NewResponseController(w)
	defer conn.SetReadDeadline(time.Time{})
	_, err := into.ReadFrom(&stallReader{
		body: http.MaxBytesReader(w, r.Body, contract.MaxBodyBytes),
		conn: conn, limits: a.bodyLimits, end: time.Now().Add(a.bodyLimits.total),
	})
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(r)
	case err != nil:
		return errCutBody
	}
	return nil
}

func tooLarge(r *http.Request) error {
	if r.Method == http.MethodPut {
		return errPartTooLarge
	}
	return errBodyTooLarge
}

// decompress decodes a body. Only gzip and no encoding are supported.
func decompress(encoding string, body []byte) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, &refusal{
			Code: contract.CodeNotSupported, Status: http.StatusUnsupportedMediaType,
			Message: fmt.Sprintf("content encoding %q is not supported", encoding), Hint: "Send the body uncompressed or with gzip.",
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, badRequest("request body is not gzip")
	}
	plain, err := bounded.ReadAll(z, contract.MaxBodyBytes)
	switch {
	case errors.Is(err, bounded.ErrTooLong):
		return nil, errBodyTooLarge
	case err != nil:
		return nil, badRequest("request body is incomplete gzip")
	}
	return plain, nil
}

// bodyOf is the request's body, verified and decompressed.
func bodyOf(r *http.Request) []byte { return receivedBodyOf(r).bytes }

// receivedBodyOf is bodyOf for handlers of PUT, which must check whether the body was cut.
func receivedBodyOf(r *http.Request) receivedBody {
	body, _ := r.Context().Value(bodyKey{}).(receivedBody)
	return body
}
