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

// receivedBody is a request's body as handlers get it. The memory is used again once the
// request is answered.
type receivedBody struct {
	bytes []byte // held against its digest, and decompressed
	// cut says that the body ended early: bytes are what came of it, which no digest
	// proves. Only handlers of PUT get to see such a body.
	cut bool
}

var (
	errBodyTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("request body is over %d MiB", contract.MaxBodyBytes>>20),
		Hint:    "send less code in one run; put data in a file",
	}
	errPartTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("part is over %d MiB", contract.MaxFilePart>>20),
		Hint:    "send the file in smaller parts",
	}
	errCutBody = badRequest("request body ended early")
)

// boundUnread gives the body of a request that nobody reads, because it is not
// authorized, as long as its headers had. net/http discards such a body before it
// answers, and one that never came held the connection for ever.
func (a *API) boundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) // readBody sets its own
		}
		next.ServeHTTP(w, r)
	})
}

// decodeBody reads the whole body within its bound, holds it against its digest as
// it was sent, and only then decompresses it, within the same bound.
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

// usableCut reports whether the beginning of a body is worth something: that of a
// part of a file, as long as it is not compressed.
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

// decompress undoes a Content-Encoding; only gzip and none are known.
func decompress(encoding string, body []byte) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, &refusal{
			Code: contract.CodeNotSupported, Status: http.StatusUnsupportedMediaType,
			Message: fmt.Sprintf("content encoding %q is not supported", encoding), Hint: "send the body plain or with gzip",
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
		return nil, badRequest("the request body is not complete gzip")
	}
	return plain, nil
}

// bodyOf is the request's body, verified and decompressed.
func bodyOf(r *http.Request) []byte { return receivedBodyOf(r).bytes }

// receivedBodyOf is bodyOf for handlers of PUT, which must look whether it is whole.
func receivedBodyOf(r *http.Request) receivedBody {
	body, _ := r.Context().Value(bodyKey{}).(receivedBody)
	return body
}
