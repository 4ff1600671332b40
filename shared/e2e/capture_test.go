package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
)

// session is what a tunnel carries in a test: each kind of content has its own mark.
type session struct{ marks map[string]string }

// mark returns the mark of a kind of content. It is a valid name in Python and in a path.
func (s *session) mark(kind string) string {
	m := "zqx" + strings.ReplaceAll(kind, " ", "") + "7Kd93Vb2Lm5"
	s.marks[kind] = m
	return m
}

// spelled is an expression of Python for text that the code does not contain.
func spelled(text string) string {
	return fmt.Sprintf("'%s' + '%s'", text[:5], text[5:])
}

// unsealed opens the captured messages as holders of the secret do, and returns their
// queries and bodies.
func unsealed(t *testing.T, captured []harness.Recording) (texts [][]byte) {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	vm := linetest.NewExecutor(key, instanceIn(t, captured), time.Now)
	for _, c := range captured {
		up, down := bufio.NewReader(bytes.NewReader(c.Up)), bufio.NewReader(bytes.NewReader(c.Down))
		for {
			req, err := http.ReadRequest(up)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal("in the capture:", err)
			}
			x, body, err := vm.Open(req)
			if err != nil {
				t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, []byte(req.URL.RawQuery), body)
			res, err := http.ReadResponse(down, req)
			if err != nil {
				break // the session ended before the answer
			}
			if x == nil { // GET /health, which is open to all
				_, _ = io.Copy(io.Discard, res.Body)
				continue
			}
			text, err := linetest.Open(x, res, res.Body, false)
			if err != nil {
				t.Fatalf("the answer to %s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, text)
		}
	}
	return texts
}

// instanceIn returns the executor that answered first.
func instanceIn(t *testing.T, captured []harness.Recording) contract.Instance {
	t.Helper()
	for _, c := range captured {
		if res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(c.Down)), nil); err == nil {
			instance, err := contract.ParseInstance(res.Header.Get(contract.HeaderInstance))
			if err != nil {
				t.Fatal(err)
			}
			return instance
		}
	}
	t.Fatal("nothing was captured")
	return contract.Instance{}
}
