package api

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// Without the key, nothing about the secret, the clock, the paths or the methods may be
// learned.
func TestEveryUnauthorizedRequestGetsTheSameAnswer(t *testing.T) {
	s := newStand(t)
	sign := func(secret auth.Secret, req *http.Request, created time.Time) *http.Request {
		linetest.Seal(t, secret, req, nil, created)
		return req
	}
	good := func() *http.Request { return sign(s.secret, s.request("GET", contract.PathKernel, nil), time.Now()) }
	with := func(change func(*http.Request)) *http.Request {
		req := good()
		change(req)
		return req
	}
	other := auth.GenerateSecret()
	requests := map[string]*http.Request{
		"no signature":           s.request("GET", contract.PathKernel, nil),
		"unknown path":           s.request("GET", "/v1/nothing", nil),
		"wrong method":           s.request("DELETE", contract.PathKernel, nil),
		"another secret":         sign(other, s.request("GET", contract.PathKernel, nil), time.Now()),
		"another secret, skewed": sign(other, s.request("GET", contract.PathKernel, nil), time.Unix(1, 0)),
		"another query":          with(func(r *http.Request) { r.URL.RawQuery = "limit=1" }),
		"signature twice":        with(func(r *http.Request) { r.Header.Add("Signature", r.Header.Get("Signature")) }),
		"junk signature":         with(func(r *http.Request) { r.Header.Set("Signature", "sig1=:!!!:") }),
		"bearer token":           with(func(r *http.Request) { r.Header = http.Header{"Authorization": {"Bearer " + s.secret.Reveal()}} }),
		"key_id of ours, MAC of another": with(func(r *http.Request) {
			forged := sign(other, s.request("GET", contract.PathKernel, nil), time.Now())
			r.Header.Set("Signature", forged.Header.Get("Signature"))
		}),
		"body over the bound": s.request("POST", contract.PathExecutions, make([]byte, contract.MaxBodyBytes+1)),
	}
	var want, wantHeaders string
	n := 0
	for name, req := range requests {
		n++
		req.Header.Set(addrHeader, fmt.Sprintf("10.0.0.%d", n))
		res := s.do(req)
		id := res.Header.Get(contract.HeaderRequestID)
		got := strings.ReplaceAll(string(res.body), id, "ID")
		if res.StatusCode != http.StatusUnauthorized || res.error(t).Code != contract.CodeUnauthorized {
			t.Errorf("%s: answer is %d %s", name, res.StatusCode, res.body)
		}
		if want == "" {
			want, wantHeaders = got, headerNames(res.Header)
		}
		if got != want || headerNames(res.Header) != wantHeaders {
			t.Errorf("%s: answer differs:\n%s %s\nwant\n%s %s", name, headerNames(res.Header), got, wantHeaders, want)
		}
		if res.Header.Get("Signature") != "" || res.Header.Get(contract.HeaderInstance) != "" {
			t.Errorf("%s: an unauthorized caller is shown %v", name, res.Header)
		}
	}
}

// headerNames omits Connection, because net/http closes connections whose body it does not
// read.
func headerNames(h http.Header) string {
	var names []string
	for name := range h {
		if name != "Connection" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestAWrongClockGetsASignedAnswerWithTheServersTime(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	before := time.Now().Unix()
	for name, created := range map[string]time.Time{
		"behind": time.Now().Add(-contract.ClockSkew - 10*time.Second),
		"ahead":  time.Now().Add(contract.ClockSkew + time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, created)
			e := res.want(t, http.StatusUnauthorized, contract.CodeClockSkew)
			if e.ServerTime < before || e.ServerTime > time.Now().Unix() || !e.Retryable {
				t.Errorf("error is %+v", e)
			}
		})
	}
	res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, time.Now().Add(contract.ClockSkew-10*time.Second))
	res.want(t, http.StatusNotFound, contract.CodeNotFound)
}

func TestAnAnswerIsBoundToItsOwnRequest(t *testing.T) {
	s := standWith(t, echo)
	other, own := s.request("GET", "/x", nil), s.request("GET", "/x", nil)
	stranger, x := s.sign(other, nil, time.Now()), s.sign(own, nil, time.Now())
	res := s.do(own)
	if _, err := linetest.Open(stranger, res.Response, bytes.NewReader(res.body), false); err == nil {
		t.Fatal("an answer verifies for another request of the same content")
	}
	if _, err := linetest.Open(x, res.Response, bytes.NewReader(res.body), false); err != nil {
		t.Fatal(err)
	}
}
