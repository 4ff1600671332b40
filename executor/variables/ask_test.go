package variables

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"not JSON":               {`x`, "not an execute_reply"},
		"a cell that failed":     {`{"status":"error","ename":"A","evalue":"b"}`, "python raised A: b"},
		"aborted":                {`{"status":"aborted"}`, "python raised"},
		"no expressions":         {`{"status":"ok"}`, "no value of our expression"},
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

func TestAnInterruptIsAPythonError(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k := startKernel(t, s)
		// What goes away says so and then lasts until it is interrupted.
		k.run(`
import os, time
class Lasting:
    def __del__(self):
        os.write(_w, b"x")
        time.sleep(600)
_r, _w = os.pipe()
lasting = Lasting()
`, "None")
		pipe := strings.Trim(k.run("", `f"/proc/{os.getpid()}/fd/{_r}"`), "'")
		interrupted := make(chan error, 1)
		go func() {
			f, err := os.Open(pipe)
			if err == nil {
				defer f.Close()
				if _, err = f.Read(make([]byte, 1)); err == nil {
					err = syscall.Kill(k.pid, syscall.SIGINT)
				}
			}
			interrupted <- err
		}()
		// Python swallows what a __del__ raises, so the cleanup continues.
		if got, err := Cleanup(t.Context(), k.Client); err != nil || got.VariablesCleared != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
		if err := <-interrupted; err != nil {
			t.Fatal(err)
		}
		var python *PythonError
		k.run("get_ipython().user_ns_hidden = None", "None")
		if _, err := Variables(t.Context(), k.Client); !errors.As(err, &python) || python.EName != "AttributeError" {
			t.Errorf("a broken IPython gives %v", err)
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
