package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestEveryCodeHasARow(t *testing.T) {
	for _, code := range contract.Codes {
		status, e := answerWith(code, "message", "")
		if status < 400 || e.Hint == "" || e.Code != code {
			t.Errorf("%s is answered %d %+v", code, status, e)
		}
	}
	if len(codeRows) != len(contract.Codes) {
		t.Errorf("%d rules for %d codes", len(codeRows), len(contract.Codes))
	}
}

// Codes without an error row are used by refusals of this package.
func TestEveryCodeIsReached(t *testing.T) {
	reached := map[contract.Code]bool{
		contract.CodeInternal:     true, // errors without a row
		contract.CodeTooLarge:     true, // bodies and headers
		contract.CodeNotSupported: true, // methods and encodings
		contract.CodeChanged:      true, // ranged reads of files
	}
	for _, s := range errorRows {
		reached[s.code] = true
	}
	for _, code := range contract.Codes {
		if !reached[code] {
			t.Errorf("no error leads to %s", code)
		}
	}
}

func TestEveryErrorIsTranslatedWrappedOrNot(t *testing.T) {
	for _, s := range errorRows {
		for _, err := range []error{s.err, fmt.Errorf("doing it: %w", s.err)} {
			status, e := translate(err)
			hint := s.hint
			if hint == "" {
				hint = codeRows[s.code].hint
			}
			want := contract.Error{Code: s.code, Message: err.Error(), Hint: hint, Retryable: codeRows[s.code].retryable}
			if diff := cmp.Diff(want, e); diff != "" || status != codeRows[s.code].status {
				t.Errorf("%v is answered with status %d: %s", err, status, diff)
			}
		}
	}
}

func TestTheTextOfAnUnknownErrorIsNotSent(t *testing.T) {
	status, e := translate(errors.New("open /root/.secret: denied"))
	if status != 500 || e.Code != contract.CodeInternal || e.Message != "internal error" {
		t.Fatalf("answered %d %+v", status, e)
	}
}
