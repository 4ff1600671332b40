package auth

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

const testTarget = "https://example.com/v1/executions?offset=3&name=a%20b"

func TestRequestPasses(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		sealed      bool
	}{
		"with all":      {"POST", testTarget, true},
		"no query":      {"GET", "https://example.com/v1/kernel", false},
		"empty query":   {"GET", "https://example.com/v1/kernel?", false},
		"no path":       {"GET", "https://example.com", false},
		"escaped path":  {"GET", "https://example.com/a%2Fb%20c/%C3%A9", false},
		"odd query":     {"GET", "https://example.com/v1/files?path=%2Fcontent%2Fü&x=a+b;c", false},
		"no body":       {"POST", "https://example.com/v1/cleanup", false},
		"put":           {"PUT", "https://example.com/v1/uploads/1?s=AA", true},
		"GET with body": {"GET", "https://example.com/v1/kernel", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(t, c.method, c.url, c.sealed, began)
			if _, err := newTestVerifier(t).Verify(got.req); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// edit changes one value of the Signature-Input header.
func edit(from, to string) func(*http.Request) {
	return func(r *http.Request) {
		old := r.Header.Get(HeaderSignatureInput)
		changed := strings.Replace(old, from, to, 1)
		if changed == old {
			panic("nothing to change: " + from)
		}
		r.Header.Set(HeaderSignatureInput, changed)
	}
}

var requestTamperings = map[string]func(*http.Request){
	"method":              func(r *http.Request) { r.Method = "DELETE" },
	"path":                func(r *http.Request) { r.URL.Path = "/v1/shutdown" },
	"query":               func(r *http.Request) { r.URL.RawQuery = "offset=4&name=a%20b" },
	"query dropped":       func(r *http.Request) { r.URL.RawQuery = "" },
	"encoding":            func(r *http.Request) { r.Header.Set(HeaderContentEncoding, "gzip") },
	"encoding missing":    func(r *http.Request) { r.Header.Del(HeaderContentEncoding) },
	"encoding twice":      func(r *http.Request) { r.Header.Add(HeaderContentEncoding, Encoding) },
	"instance":            func(r *http.Request) { r.Header.Set(contract.HeaderInstance, "instance-2/start-1") },
	"instance missing":    func(r *http.Request) { r.Header.Del(contract.HeaderInstance) },
	"instance twice":      func(r *http.Request) { r.Header.Add(contract.HeaderInstance, here.String()) },
	"instance too long":   func(r *http.Request) { r.Header.Set(contract.HeaderInstance, strings.Repeat("x", maxInstanceBytes+1)) },
	"instance left out":   edit(` "executor-instance"`, ``),
	"created":             edit("created=1790000000", "created=1790000001"),
	"created missing":     edit("created=1790000000;", ""),
	"expires added":       edit(";nonce=", ";expires=1790000300;nonce="),
	"nonce":               edit(`nonce="`, `nonce="A`),
	"nonce empty":         func(r *http.Request) { cutParam(r, `nonce="`, `"`) },
	"keyid":               edit(`keyid="5`, `keyid="6`),
	"alg":                 edit(`alg="hmac-sha256"`, `alg="hmac-sha512"`),
	"tag":                 edit(`tag="colab-relay"`, `tag="colab-other"`),
	"parameter added":     edit(`;tag=`, `;x;tag=`),
	"component added":     edit(`"content-encoding")`, `"content-encoding" "date")`),
	"component repeated":  edit(`"@method" `, `"@method" "@method" `),
	"component parameter": edit(`"@path"`, `"@path";req`),
	"input not parsable":  func(r *http.Request) { r.Header.Set(HeaderSignatureInput, "sig1=(((") },
	"input missing":       func(r *http.Request) { r.Header.Del(HeaderSignatureInput) },
	"input too long":      edit(`nonce="`, `nonce="`+strings.Repeat("A", maxInputBytes)),
	"other label":         edit("sig1=", "sig2="),
	"signature": func(r *http.Request) {
		r.Header.Set(HeaderSignature, writeMAC([]byte("12345678901234567890123456789012")))
	},
	"signature short":   func(r *http.Request) { r.Header.Set(HeaderSignature, "sig1=:AAAA:") },
	"signature a token": func(r *http.Request) { r.Header.Set(HeaderSignature, "sig1=abc") },
	"signature missing": func(r *http.Request) { r.Header.Del(HeaderSignature) },
	"second signature":  func(r *http.Request) { r.Header.Set(HeaderSignature, r.Header.Get(HeaderSignature)+", sig2=:AAAA:") },
	"unsigned": func(r *http.Request) {
		r.Header.Del(HeaderSignature)
		r.Header.Del(HeaderSignatureInput)
	},
	"url too long": func(r *http.Request) { r.URL.RawQuery = strings.Repeat("x", 17<<10) },
}

// cutParam empties a string parameter of the Signature-Input header.
func cutParam(r *http.Request, before, after string) {
	head, tail, _ := strings.Cut(r.Header.Get(HeaderSignatureInput), before)
	_, tail, _ = strings.Cut(tail, after)
	r.Header.Set(HeaderSignatureInput, head+before+after+tail)
}

func TestTamperedRequestIsUnauthorized(t *testing.T) {
	for name, tamper := range requestTamperings {
		t.Run(name, func(t *testing.T) {
			got := send(t, "POST", testTarget, true, began)
			v := newTestVerifier(t)
			genuine := got.req.Clone(t.Context())
			tamper(got.req)
			if _, err := v.Verify(got.req); err != ErrUnauthorized { //nolint:errorlint // exactly this error: no cause may leak
				t.Fatalf("error %v", err)
			}
			if _, err := v.Verify(genuine); err != nil {
				t.Fatalf("the genuine request is refused after the tampered one: %v", err)
			}
		})
	}
}

// A request in another profile is refused, even with the correct key, and so is what was signed with
// another key, or for something else.
func TestARequestThatWasSignedOtherwiseIsUnauthorized(t *testing.T) {
	secret := testSecret(t)
	other, err := NewSecret(testKey + "!")
	must(t, err)
	bySecret := send(t, "GET", testTarget, false, began).req // which itself signs nothing
	bySecret.Header.Set(HeaderSignature, writeMAC(macOf([]byte(testKey), requestBase(bySecret, "", false, params(bySecret.Header)))))
	asked := send(t, "GET", testTarget, false, began)
	ofAnAnswer := asked.req.Clone(t.Context())
	for _, name := range []string{HeaderSignature, HeaderSignatureInput} {
		ofAnAnswer.Header.Set(name, answered(t, asked, 200, false).Header.Get(name))
	}
	requests := map[string]*http.Request{
		"the secret itself": bySecret, "an answer's signature": ofAnAnswer,
		"another key":        sendAs(t, other, "GET", parameters{created: began.Unix(), nonce: randomText(freshBytes), keyID: other.KeyID()}),
		"another key's name": sendAs(t, secret, "GET", parameters{created: began.Unix(), nonce: randomText(freshBytes), keyID: "0123456789abcdef"}),
	}
	for name, nonce := range map[string]string{
		"no nonce": "", "15 bytes": randomText(15), "too long": strings.Repeat("A", maxNonceChars+4),
		"not base64url": strings.Repeat("+", 22), "loose end": strings.Repeat("A", 21) + "B",
	} {
		requests[name] = sendAs(t, secret, "GET", parameters{created: began.Unix(), nonce: nonce, keyID: secret.KeyID()})
	}
	for name, req := range requests {
		if _, err := newTestVerifier(t).Verify(req); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Method and Content-Encoding determine the form of a request. In the form of another method,
// a request would name no executor, or one that is not checked; in that of another body, its
// body could be added or removed.
func TestCorrectMACInAnotherFormIsUnauthorized(t *testing.T) {
	secret := testSecret(t)
	for _, method := range []string{"GET", "POST", "HEAD", "get"} {
		for _, sealed := range []bool{false, true} {
			for _, other := range []string{"GET", "POST"} {
				for _, otherSealed := range []bool{false, true} {
					req := unsigned(t, here.String(), "POST", testTarget, sealed)
					req.Method = method
					x := NewSigner(secret).NewExchange()
					p := parameters{created: began.Unix(), nonce: x.nonce, keyID: secret.KeyID()}.write(requestComponents(other, otherSealed))
					// The base of the claimed form: only the form is wrong.
					claimed := req.Clone(t.Context())
					base := strings.Replace(requestBase(withMethod(claimed, other), here.String(), otherSealed, p), `"@method": `+other, `"@method": `+method, 1)
					setSignature(req.Header, p, secret.mac(base))
					own := (method == "GET") == (other == "GET") && sealed == otherSealed
					_, err := newTestVerifier(t).Verify(req)
					if own && err != nil || !own && !errors.Is(err, ErrUnauthorized) {
						t.Errorf("%s (body %v) in the form of %s (body %v): error %v", method, sealed, other, otherSealed, err)
					}
				}
			}
		}
	}
}

func withMethod(r *http.Request, method string) *http.Request {
	r.Method = method
	return r
}

func TestARequestForAnotherExecutorIsReported(t *testing.T) {
	for instance, want := range map[string]error{
		"instance-1/start-1": nil,
		"instance-1/start-2": ErrNewStart,
		"instance-2/start-1": ErrNewInstance,
		"instance-2/start-2": ErrNewInstance,
		"start-1/instance-1": ErrNewInstance,
	} {
		for _, method := range []string{"POST", "HEAD"} {
			v := newTestVerifier(t)
			got := sendTo(t, instance, method, testTarget, false, began)
			if _, err := v.Verify(got.req); !errors.Is(err, want) {
				t.Errorf("%s for %s: error %v, want %v", method, instance, err, want)
			}
			if remembered := len(v.window.seen) == 1; remembered != (want == nil) {
				t.Errorf("%s for %s: %d nonces remembered", method, instance, len(v.window.seen))
			}
		}
	}
}

// began is the time on the executor's clock in these tests.
var began = time.Unix(1_790_000_000, 0)

// here is the executor of these tests.
var here = contract.Instance{ID: "instance-1", Start: "start-1"}

func newTestVerifier(t testing.TB) *Verifier { return verifierAt(t, began) }

func verifierAt(t testing.TB, now time.Time) *Verifier {
	return NewVerifier(testSecret(t), here, func() time.Time { return now })
}

// readRequest parses a request as an http.Server does.
func readRequest(t testing.TB, wire string) *http.Request {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	must(t, err)
	return req
}

// arrived writes req to memory and reads it as a server does.
func arrived(t testing.TB, req *http.Request) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	must(t, req.Write(&wire))
	return readRequest(t, wire.String())
}

// sent is a signed request as the executor received it, and what the relay keeps of it.
type sent struct {
	req *http.Request
	*Exchange
}

// send signs a request whose body, if any, is sealed.
func send(t testing.TB, method, url string, sealed bool, created time.Time) sent {
	t.Helper()
	return sendTo(t, here.String(), method, url, sealed, created)
}

func sendTo(t testing.TB, instance, method, url string, sealed bool, created time.Time) sent {
	t.Helper()
	req := unsigned(t, instance, method, url, sealed)
	x := NewSigner(testSecret(t)).NewExchange()
	must(t, x.SignRequest(req, created))
	return sent{arrived(t, req), x}
}

func unsigned(t testing.TB, instance, method, url string, sealed bool) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	must(t, err)
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, instance)
	}
	if sealed {
		req.Header.Set(HeaderContentEncoding, Encoding)
	}
	return req
}

// sendAs signs a request with these parameters.
func sendAs(t testing.TB, secret Secret, method string, p parameters) *http.Request {
	t.Helper()
	req := unsigned(t, here.String(), method, testTarget, false)
	x := &Exchange{secret: secret, nonce: p.nonce}
	must(t, x.signRequest(req, p))
	return arrived(t, req)
}

// answered is a signed answer as the relay received it.
func answered(t testing.TB, s sent, status int, sealed bool) *http.Response {
	t.Helper()
	x := &Exchange{secret: testSecret(t), mac: s.mac}
	h := http.Header{contract.HeaderInstance: {here.String()}}
	if sealed {
		h.Set(HeaderContentEncoding, Encoding)
	}
	must(t, x.SignAnswer(h, status, began))
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
