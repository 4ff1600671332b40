package api

import (
	"errors"
	"testing"

	"colabrelay/shared/contract"
)

func TestTheTextOfAnUnknownErrorIsNotSent(t *testing.T) {
	status, e := translate(errors.New("open /root/.secret: denied"))
	if status != 500 || e.Code != contract.CodeInternal || e.Message != "internal error" {
		t.Fatalf("answered %d %+v", status, e)
	}
}
