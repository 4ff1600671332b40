package variables

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
)

// Code in the kernel can write the reply: one of millions of items is not decoded.
func TestALongReplyIsRefusedUndecoded(t *testing.T) {
	reply := func(size int) json.RawMessage {
		text := `{"status":"ok","user_expressions":{"answer":{"status":"ok","data":{"` + answerMIME + `":{"count":1}}}},"x":"`
		return json.RawMessage(text + strings.Repeat("x", size-len(text)-2) + `"}`)
	}
	for size, refused := range map[int]bool{maxAnswer: false, maxAnswer + 1: true} {
		var answer contract.Variables
		if err := decode(reply(size), &answer); (err != nil) != refused || (answer.Count == 1) == refused {
			t.Errorf("%d bytes: %+v, %v", size, answer, err)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
