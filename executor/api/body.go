package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

type bodyKey struct{}

var errBodyTooLarge = &refusal{
	Code:    contract.CodeTooLarge,
	Message: fmt.Sprintf("request body is over %d MiB", contract.MaxBodyBytes>>20),
	Hint:    "send less code in one run; put data in a file",
}

// boundUnread gives the body of a request that nobody reads, because it is not
// authorized, as long as its headers had. net/http discards such a body before it
// answers, and one that never came held the connection for ever.
func (a *API) boundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) // decodeBody sets its own
		}
		next.ServeHTTP(w, r)
	})
}

// decodeBody reads the whole body within its bound, holds it against its digest as
// it was sent, and only then decompresses it, within the same bound.
func (a *API) decodeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err == nil {
			err = auth.VerifyDigest(r.Header, body)
		}
		if err == nil {
			body, err = decompress(r.Header.Get("Content-Encoding"), body)
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, body)))
	})
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > contract.MaxBodyBytes {
		return nil, errBodyTooLarge
	}
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		defer conn.SetReadDeadline(time.Time{})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, contract.MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, errBodyTooLarge
	}
	if err != nil {
		return nil, badRequest("request body ended early")
	}
	return body, nil
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
	plain, err := io.ReadAll(io.LimitReader(z, contract.MaxBodyBytes+1))
	if err != nil {
		return nil, badRequest("request body is not whole gzip")
	}
	if len(plain) > contract.MaxBodyBytes {
		return nil, errBodyTooLarge
	}
	return plain, nil
}

// bodyOf is the request's body, verified and decompressed.
func bodyOf(r *http.Request) []byte {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	return body
}
