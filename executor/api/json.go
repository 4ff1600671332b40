package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"
)

// write answers with v as JSON.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // the answer is never shown as a page, and escaping makes HTML outputs half as long again
	if err := enc.Encode(v); err != nil {
		a.fail(w, r, fmt.Errorf("encoding an answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body.Bytes()) // an error means that the caller has disconnected
}

// decode reads the request's body as one JSON object into v. Unknown fields are ignored,
// because a newer relay may send them. It releases the body, which would stay in memory while
// the handler waits.
func decode(r *http.Request, v any) error {
	c := callOf(r)
	body := c.body
	c.body = nil
	return decodeBytes(body, v)
}

func decodeBytes(body []byte, v any) error {
	if !utf8.Valid(body) {
		return badRequest("request body is not valid UTF-8") // encoding/json would silently replace the invalid bytes
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	err := dec.Decode(v)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		return badRequest("%s: a %s is not valid here", cmp.Or(wrongType.Field, "request body"), wrongType.Value)
	case errors.Is(err, io.EOF):
		return badRequest("request body is empty")
	case err != nil:
		return badRequest("request body is not JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("request body contains more than one JSON value")
	}
	return nil
}
