package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// setBody makes body the bytes that are sent, whatever was signed.
func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
}

func TestTheSizeOfABodyIsChecked(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, r *http.Request) { w.Write(bodyOf(r)[:0]) })
	for name, tc := range map[string]struct {
		body   []byte
		status int
	}{
		"at the bound":               {noise(contract.MaxBodyBytes), 200},
		"over the bound":             {noise(contract.MaxBodyBytes + 1), 413},
		"compressed, over the bound": {make([]byte, contract.MaxBodyBytes+1), 413},
	} {
		for _, chunked := range []bool{false, true} {
			req := s.request("POST", "/x", nil)
			x := s.sign(req, tc.body, time.Now())
			if chunked && tc.body != nil {
				req.ContentLength = -1
			}
			res := s.opened(req, x)
			if tc.status == http.StatusRequestEntityTooLarge {
				res.want(t, tc.status, contract.CodeTooLarge)
			} else if res.StatusCode != tc.status {
				t.Errorf("%s (chunked %v): answer is %d %s", name, chunked, res.StatusCode, res.body)
			}
		}
	}
}

// What the tunnel's operator can change without the signature noticing: query and body are
// authentic only if they open.
func TestAQueryOrBodyThatDoesNotOpenGetsASealedRefusal(t *testing.T) {
	s := standWith(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the handler", r.URL) })
	sealed := func(req *http.Request) []byte {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for name, tamper := range map[string]func(req *http.Request){
		"a bit": func(req *http.Request) {
			body := sealed(req)
			body[len(body)/2] ^= 1
			setBody(req, body)
		},
		"of another request": func(req *http.Request) {
			other := s.request("POST", "/x", nil)
			s.sign(other, []byte("evil"), time.Now())
			setBody(req, sealed(other))
		},
	} {
		req := s.request("POST", "/x", nil)
		x := s.sign(req, []byte("good"), time.Now())
		tamper(req)
		if e := s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest); e.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	for name, query := range map[string]string{
		"in the clear": "offset=1", "not sealed": "s=AAAA", "empty": "s=",
	} {
		req := s.request("GET", "/x", nil)
		req.URL.RawQuery = query
		x := auth.NewSigner(s.secret).NewExchange()
		if err := x.SignRequest(req, time.Now()); err != nil {
			t.Fatal(err)
		}
		if res := s.opened(req, x); res.StatusCode != http.StatusBadRequest {
			t.Errorf("query %s: answer is %d %s", name, res.StatusCode, res.body)
		}
	}
}

// Thousands of empty values take a hundred times their text in memory.
func TestTheValuesOfABodyAreBounded(t *testing.T) {
	for n, refused := range map[int]bool{maxValues - 2: false, maxValues - 1: true, 2_700_000: true} {
		body := `{"job_id":"a,b{[\\\"","steps":[` + strings.Repeat("1,", n-1) + `1]}` // two arrays and objects, n commas
		err := decodeBytes([]byte(body), &struct{}{})
		if errors.Is(err, errTooManyValues) != refused || !refused && err != nil {
			t.Errorf("%d values: %v", n, err)
		}
	}
}
