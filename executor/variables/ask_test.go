package variables

import (
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"a cell that failed":     {`{"status":"error","ename":"A","evalue":"b"}`, "python raised A: b"},
		"an expression failed":   {`{"status":"ok","user_expressions":{"answer":{"status":"error","ename":"KeyboardInterrupt","evalue":""}}}`, "python raised KeyboardInterrupt"},
		"another MIME type":      {`{"status":"ok","user_expressions":{"answer":{"status":"ok","data":{"text/plain":"x"}}}}`, "no " + answerMIME},
		"an answer of no object": {`{"status":"ok","user_expressions":{"answer":{"status":"ok","data":{"` + answerMIME + `":7}}}}`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			var answer contract.Variables
			err := decode(json.RawMessage(test.content), &answer)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"status":"ok","user_expressions":{"answer":{"status":"ok","data":{"` + answerMIME + `":{"count":1,"variables":[{"name":"x","shape":[1]}]}}}}}`))
	f.Add([]byte(`{"status":"error","ename":"A"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var answer contract.Variables
		if err := decode(content, &answer); err == nil && !json.Valid(content) {
			t.Error("an answer from what is no JSON")
		}
	})
}

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
