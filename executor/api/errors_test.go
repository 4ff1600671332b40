package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

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

func TestTheTextOfAnUnknownErrorIsNotSent(t *testing.T) {
	status, e := translate(errors.New("open /root/.secret: denied"))
	if status != 500 || e.Code != contract.CodeInternal || e.Message != "internal error" {
		t.Fatalf("answered %d %+v", status, e)
	}
}

func TestErrorsAboutManyFilesAreShort(t *testing.T) {
	s := newStand(t)
	for over := range 2 {
		message := strings.Repeat("e", maxFileError+over)
		e := s.api.fileError(new(http.Request), badRequest("%s", message))
		if len(e.Message) > maxFileError || (e.Message == message) != (over == 0) {
			t.Errorf("%d past the bound: a message of %d bytes", over, len(e.Message))
		}
	}
}
