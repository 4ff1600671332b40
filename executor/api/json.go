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

	"colabrelay/shared/contract"
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

// maxValues bounds the values in a body. A job whose every step names many others has half as many.
// Without it, 8 MiB of "{}," would become half a gigabyte.
const maxValues = 400_000

var errTooManyValues = &refusal{
	Code:    contract.CodeTooLarge,
	Message: fmt.Sprintf("the request has more than %d values", maxValues),
	Hint:    "Split it into several requests.",
}

// values is about how many values JSON has: how many arrays and objects begin in it, and commas.
func values(body []byte) (n int) {
	if len(body) <= maxValues {
		return 0
	}
	inText := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case !inText && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

func decodeBytes(body []byte, v any) error {
	if !utf8.Valid(body) {
		return badRequest("request body is not valid UTF-8") // encoding/json would silently replace the invalid bytes
	}
	if values(body) > maxValues {
		return errTooManyValues
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
