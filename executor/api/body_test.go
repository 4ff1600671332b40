package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// setBody makes body the bytes that are sent, whatever was signed.
func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
}

func TestTheSizeOfABodyIsChecked(t *testing.T) {
	tier.Long(t)
	s := standWith(t, func(w http.ResponseWriter, r *http.Request) { w.Write(bodyOf(r)[:0]) })
	for name, tc := range map[string]struct {
		body   []byte
		status int
	}{
		"at the bound":               {noise(contract.MaxBodyBytes), 200},
		"over the bound":             {noise(contract.MaxBodyBytes + 1), 413},
		"compressed, at the bound":   {make([]byte, contract.MaxBodyBytes), 200},
		"compressed, over the bound": {make([]byte, contract.MaxBodyBytes+1), 413},
		"far over the bound":         {noise(contract.MaxBodyBytes + 1<<20), 413},
		"none":                       {nil, 200},
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
		"cut":          func(req *http.Request) { setBody(req, sealed(req)[:100]) },
		"empty":        func(req *http.Request) { setBody(req, nil) },
		"in the clear": func(req *http.Request) { setBody(req, []byte(`{"code":"1+1"}`)) },
		"of another request": func(req *http.Request) {
			other := s.request("POST", "/x", nil)
			s.sign(other, []byte("evil"), time.Now())
			setBody(req, sealed(other))
		},
	} {
		for _, method := range []string{"POST", "DELETE"} {
			req := s.request(method, "/x", nil)
			x := s.sign(req, []byte("good"), time.Now())
			tamper(req)
			if e := s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest); e.Message == "" {
				t.Errorf("%s: no message", name)
			}
		}
	}
	for name, query := range map[string]string{
		"in the clear": "offset=1", "not sealed": "s=AAAA", "not base64url": "s=!", "empty": "s=", "padded": "s=AA==",
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

// The signature says that there is no body, so bytes after the head are the operator's.
func TestABodyThatWasNotAnnouncedIsRefused(t *testing.T) {
	s := standWith(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the handler", r.Method) })
	for _, method := range []string{"POST", "PUT", "DELETE", "GET"} {
		req := s.request(method, "/x", nil)
		x := s.sign(req, nil, time.Now())
		setBody(req, []byte("x"))
		s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
}

func TestQueriesArriveAsTheyWereWritten(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RawQuery) })
	long := "path=" + string(bytes.Repeat([]byte("%C3%A9"), 2048)) // a path of 4 KiB, of which each byte is escaped
	for _, query := range []string{"offset=3&name=a%20b", "path=%2Fcontent%2Fü&x=a+b;c", long} {
		if res := s.call("GET", "/x?"+query, nil); string(res.body) != query {
			t.Errorf("query %.80q arrived as %.80q (%d)", query, res.body, res.StatusCode)
		}
	}
}

// A query that is compressed well must not take more memory than its bound.
func TestALongQueryIsRefused(t *testing.T) {
	s := standWith(t, echo)
	s.call("GET", "/x?"+string(bytes.Repeat([]byte("a"), 1<<20)), nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
}

// A handler that waits does not hold the body that it has decoded.
func TestADecodedBodyIsReleased(t *testing.T) {
	c := &call{body: []byte(`{"code":"1"}`)}
	r := httptest.NewRequest("POST", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	var s contract.Submit
	if err := decode(r, &s); err != nil || s.Code != "1" || c.body != nil {
		t.Errorf("%+v, %v, body %q", s, err, c.body)
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
