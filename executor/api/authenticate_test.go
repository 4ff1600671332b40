package api

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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
		"no signature":            s.request("GET", contract.PathKernel, nil),
		"unknown path":            s.request("GET", "/v1/nothing", nil),
		"root":                    s.request("GET", "/", nil),
		"wrong method":            s.request("DELETE", contract.PathKernel, nil),
		"unknown method":          s.request("BREW", contract.PathKernel, nil),
		"post to health":          s.request("POST", contract.PathHealth, nil),
		"below health":            s.request("GET", contract.PathHealth+"/x", nil),
		"another secret":          sign(other, s.request("GET", contract.PathKernel, nil), time.Now()),
		"another secret, skewed":  sign(other, s.request("GET", contract.PathKernel, nil), time.Unix(1, 0)),
		"another secret, no path": sign(other, s.request("GET", "/v1/nothing", nil), time.Now()),
		"another method":          with(func(r *http.Request) { r.Method = "POST" }),
		"another path":            with(func(r *http.Request) { r.URL.Path = contract.PathProbe }),
		"another query":           with(func(r *http.Request) { r.URL.RawQuery = "limit=1" }),
		"a body announced":        with(func(r *http.Request) { r.Header.Set("Content-Encoding", "aes128gcm") }),
		"another encoding":        with(func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }),
		"no signature input":      with(func(r *http.Request) { r.Header.Del("Signature-Input") }),
		"signature twice":         with(func(r *http.Request) { r.Header.Add("Signature", r.Header.Get("Signature")) }),
		"junk signature":          with(func(r *http.Request) { r.Header.Set("Signature", "sig1=:!!!:") }),
		"bearer token":            with(func(r *http.Request) { r.Header = http.Header{"Authorization": {"Bearer " + s.secret.Reveal()}} }),
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
	for name, created := range map[string]time.Time{
		"behind": time.Now().Add(-contract.ClockSkew - 10*time.Second),
		"ahead":  time.Now().Add(contract.ClockSkew + 10*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, created)
			e := res.want(t, http.StatusUnauthorized, contract.CodeClockSkew)
			if d := time.Now().Unix() - e.ServerTime; d < 0 || d > 5 || !e.Retryable {
				t.Errorf("error is %+v", e)
			}
		})
	}
	res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, time.Now().Add(contract.ClockSkew-10*time.Second))
	res.want(t, http.StatusNotFound, contract.CodeNotFound)
}

func TestAReplayIsRefused(t *testing.T) {
	s := standWith(t, echo)
	req := s.request("GET", "/x", nil)
	x := s.sign(req, nil, time.Now())
	if res := s.do(req); res.StatusCode != http.StatusOK {
		t.Fatalf("first answer is %d", res.StatusCode)
	}
	s.opened(req, x).want(t, http.StatusUnauthorized, contract.CodeReplayed)
}

func TestSignedAnswersNameTheInstanceAndForbidTransforming(t *testing.T) {
	s := standWith(t, echo)
	res := s.signed(s.request("POST", "/x", []byte("hello")), []byte("hello"))
	if got := res.Header.Get(contract.HeaderInstance); got != "instance-1/start-1" {
		t.Errorf("instance is %q", got)
	}
	if got := res.Header.Get("Cache-Control"); !strings.Contains(got, "no-transform") {
		t.Errorf("Cache-Control is %q", got)
	}
	if got := res.Header.Get("Content-Length"); got != strconv.Itoa(21+256+17) { // header, padded text, delimiter and tag
		t.Errorf("Content-Length is %q", got)
	}
	if string(res.body) != "hello" {
		t.Errorf("the answer is %q", res.body)
	}
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

func TestWithTheKeyUnknownPathsAndMethodsAreReported(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	s.call("GET", "/v1/nothing", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	s.call("GET", "/v1/executions/a/b/c", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	for path, allow := range map[string]string{
		contract.PathExecutions:    "GET, POST",
		contract.PathKernelRestart: "POST",
		contract.PathHealth:        "GET",
		"/v1/executions/x/input":   "POST",
	} {
		res := s.call("DELETE", path, nil)
		res.want(t, http.StatusMethodNotAllowed, contract.CodeNotSupported)
		if got := res.Header.Get("Allow"); got != allow {
			t.Errorf("%s allows %q, want %q", path, got, allow)
		}
	}
}

func TestHeadIsAnsweredSignedWithoutABody(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	if res := s.call("HEAD", contract.PathKernel, nil); res.StatusCode != http.StatusMethodNotAllowed || len(res.body) != 0 {
		t.Fatalf("answer is %d %q", res.StatusCode, res.body)
	}
}
