package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// unsignedAnswers are what other programs than an executor answer.
var unsignedAnswers = map[string]struct {
	status int
	header map[string]string
	body   string
	want   Kind
	says   string
}{
	"ngrok offline":           {404, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_3200", "Content-Type": "text/html"}, "<html>offline</html>", KindTunnelOffline, "ERR_NGROK_3200"},
	"ngrok offline, in text":  {404, map[string]string{"Content-Type": "text/plain"}, "The endpoint x is offline.\r\n\r\nERR_NGROK_3200", KindTunnelOffline, "ERR_NGROK_3200"},
	"ngrok upstream down":     {502, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_8012"}, "", KindTunnelOffline, "ERR_NGROK_8012"},
	"ngrok bandwidth":         {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_725"}, "", KindTunnelQuota, "bandwidth"},
	"ngrok requests":          {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_727"}, "", KindTunnelQuota, "requests"},
	"ngrok connections":       {429, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_702"}, "", KindTunnelError, "minute"},
	"ngrok unpaid":            {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_6008"}, "", KindTunnelQuota, "suspended"},
	"ngrok plan":              {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_6032"}, "", KindTunnelQuota, "plan"},
	"ngrok shuts out":         {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_3205"}, "", KindTunnelError, "not allowed"},
	"ngrok rate":              {429, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_734"}, "", KindTunnelError, "minute"},
	"ngrok interstitial":      {200, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_6024", "Content-Type": "text/html"}, "<html>", KindTunnelError, "warning page"},
	"ngrok unknown":           {500, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_9999"}, "", KindTunnelError, "ERR_NGROK_9999"},
	"ngrok code forged":       {500, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_<script>"}, "", KindNotExecutor, "500"},
	"ngrok in a good page":    {200, map[string]string{"Content-Type": "text/html"}, "about ERR_NGROK_3200", KindNotExecutor, "not an executor"},
	"Cloudflare 1033":         {530, map[string]string{"Server": "cloudflare"}, "<html>Error 1033 Ray ID", KindTunnelOffline, "1033"},
	"Cloudflare error code":   {530, map[string]string{"Server": "cloudflare"}, "error code: 1033", KindTunnelOffline, "1033"},
	"Cloudflare 530":          {530, map[string]string{"Server": "cloudflare"}, "", KindTunnelOffline, "1033"},
	"Cloudflare 1015":         {429, map[string]string{"Server": "cloudflare"}, "error code: 1015", KindTunnelError, "1015"},
	"Cloudflare 522":          {522, map[string]string{"Server": "cloudflare"}, "<html>", KindTunnelError, "522"},
	"Cloudflare 404":          {404, map[string]string{"Server": "cloudflare"}, "<html>", KindNotExecutor, "404"},
	"some proxy":              {502, nil, "<html>Bad Gateway</html>", KindTunnelError, "502"},
	"another secret":          {401, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"unauthorized","message":"m"}}`, KindWrongSecret, "secret"},
	"a login page":            {401, map[string]string{"Content-Type": "text/html"}, "<html>log in</html>", KindNotExecutor, "401"},
	"unsigned rate limit":     {429, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"rate_limited"}}`, KindRateLimited, "minute"},
	"a redirect":              {302, map[string]string{"Location": "https://example.com/login"}, "", KindNotExecutor, "redirects"},
	"a web page":              {200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, "<html>hello</html>", KindNotExecutor, `"text/html"`},
	"our JSON without a name": {200, map[string]string{"Content-Type": "application/json"}, `{"kernel_id":"k","status":"idle"}`, KindNotExecutor, "not an executor"},
	"an unsigned new_instance": {409, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"new_instance"}}`,
		KindNotExecutor, "409"},
	"nothing at all": {204, nil, "", KindBadAnswer, "is empty (HTTP 204)"},
	"an empty page":  {200, map[string]string{"Content-Type": "text/html"}, "", KindBadAnswer, "is empty (HTTP 200)"},
	"an empty 404":   {404, nil, "", KindNotExecutor, "404"},
	"forged": {200, map[string]string{
		"Signature-Input":       `sig1=("@status" "executor-instance" "content-encoding" "signature";req;key="sig1");created=1;keyid="54f18ce324e9864b";alg="hmac-sha256";tag="colab-relay"`,
		"Signature":             "sig1=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
		"Content-Encoding":      "aes128gcm",
		contract.HeaderInstance: "instance-1/start-1",
	}, `{}`, KindBadAnswer, "signature"},
}

func TestForeignAnswersAreNamedAndNeverParsed(t *testing.T) {
	for name, c := range unsignedAnswers {
		t.Run(name, func(t *testing.T) {
			e, _ := newRunningExecutor(t)
			e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
				for key, value := range c.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return true
			})
			client := e.client(t)
			got, err := client.send(t.Context(), get(contract.PathKernel, nil)())
			problem := wantKind(t, err, c.want)
			if !strings.Contains(problem.Message, c.says) || strings.Contains(problem.Message, "<") {
				t.Errorf("message %q, want one that says %q", problem.Message, c.says)
			}
			if !mayHaveArrived(err) {
				t.Error("an unsigned answer was mistaken for a promise that nothing was done")
			}
			if len(got.body) != 0 || client.InstanceID() != "" {
				t.Errorf("an unsigned answer was accepted: %q, instance %q", got.body, client.InstanceID())
			}
			if c.status != 200 || c.want != KindNotExecutor { // health is not signed
				if _, err := client.Health(t.Context()); err == nil {
					t.Error("mistaken for an executor's health")
				}
			}
		})
	}
}

func TestWrongSecretIsReportedAtOnce(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey+"!")})
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	if got := wantKind(t, err, KindWrongSecret); !strings.Contains(got.Hint, "relay pair") {
		t.Errorf("hint %q", got.Hint)
	}
	if got := e.all(); len(got) != 0 {
		t.Errorf("%d requests passed", len(got))
	}
}

// Some tunnels recompress or rewrite what passes through.
func TestAnswerChangedOnItsWay(t *testing.T) {
	for name, change := range map[string]func(*httptest.ResponseRecorder){
		"recompressed": func(a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Encoding", "aes128gcm, gzip")
		},
		"a bit":                  func(a *httptest.ResponseRecorder) { a.Body.Bytes()[a.Body.Len()/2] ^= 1 },
		"rewritten":              func(a *httptest.ResponseRecorder) { a.Body.WriteString("<!-- served by -->") },
		"replaced":               func(a *httptest.ResponseRecorder) { a.Body.Reset(); a.Body.WriteString(`{"kernel_id":"k"}`) },
		"other status":           func(a *httptest.ResponseRecorder) { a.Code = http.StatusAccepted },
		"other instance":         func(a *httptest.ResponseRecorder) { a.Header().Set(contract.HeaderInstance, "other") },
		"claims to be gzip":      func(a *httptest.ResponseRecorder) { a.Header().Set("Content-Encoding", "gzip") },
		"claims to have no body": func(a *httptest.ResponseRecorder) { a.Header().Del("Content-Encoding") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := newRunningExecutor(t)
			e.setAfter(func(_ http.ResponseWriter, a *httptest.ResponseRecorder) bool { change(a); return false })
			_, err := e.client(t).Kernel(t.Context())
			wantKind(t, err, KindBadAnswer)
			if got := len(e.all()); got != maxBadAnswers {
				t.Errorf("%d tries", got)
			}
		})
	}
}

// An answer kept from an earlier request, though genuine then, is refused.
func TestAnswerToAnEarlierRequestIsRefused(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	var kept *httptest.ResponseRecorder
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		if kept == nil {
			kept = a
			return false
		}
		send(w, kept)
		return true
	})
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.send(t.Context(), get(contract.PathKernel, nil)())
	wantKind(t, err, KindBadAnswer)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	e, _ := newRunningExecutor(t)
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		return true
	})
	_, err := e.client(t).Kernel(t.Context())
	wantKind(t, err, KindNotExecutor)
	if reached {
		t.Error("the redirect was followed")
	}
}

// failing is a network that does not work.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestNetworkFaultsAreNamed(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want Kind
	}{
		"refused":          {dial(syscall.ECONNREFUSED), KindUnreachable},
		"no route":         {dial(syscall.EHOSTUNREACH), KindUnreachable},
		"no such host":     {dial(&net.DNSError{Name: "gone.example", IsNotFound: true}), KindNoSuchHost},
		"no name service":  {dial(&net.DNSError{Name: "gone.example", IsTemporary: true}), KindUnreachable},
		"a proxy":          {&net.OpError{Op: "proxyconnect", Net: "tcp", Err: syscall.ECONNREFUSED}, KindUnreachable},
		"a foreign CA":     {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, KindUnreachable},
		"a wrong clock":    {&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, KindUnreachable},
		"reset":            {&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, KindUnreachable},
		"end of file":      {io.ErrUnexpectedEOF, KindUnreachable},
		"something unseen": {errors.New("odd"), KindUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, Config{BaseURL: "http://gone.example", Secret: testSecret(t, testKey), Transport: failing{c.err}})
			_, err := client.Health(t.Context())
			if wantKind(t, err, c.want); !errors.Is(err, c.err) {
				t.Errorf("the cause is lost: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = client.Kernel(ctx)
			if wantKind(t, err, c.want); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the end of the time is lost: %v", err)
			}
		})
	}
}

// The next step is that of the fault, not of the kind, where they differ.
func TestFaultsHaveTheirOwnNextStep(t *testing.T) {
	c := newClient(t, Config{BaseURL: "https://gone.example", Secret: testSecret(t, testKey)})
	for want, e := range map[string]*Error{
		"name service":             c.transportError(t.Context(), &net.DNSError{Name: "x", IsTimeout: true}, false),
		"HTTPS_PROXY":              c.transportError(t.Context(), &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, false),
		"clock":                    c.transportError(t.Context(), &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, false),
		"proxy":                    c.transportError(t.Context(), &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, false),
		"--allow-cidr":             named("ngrok", "ERR_NGROK_3205", ngrokErrors),
		"minute":                   named("ngrok", "ERR_NGROK_734", ngrokErrors),
		"errors/err_ngrok_4242":    named("ngrok", "ERR_NGROK_4242", ngrokErrors),
		"Update the relay":         otherProtocol(contract.Protocol + 1),
		"relay bootstrap":          otherProtocol(contract.Protocol - 1),
		"start the executor again": named("ngrok", "ERR_NGROK_3200", ngrokErrors),
	} {
		if !strings.Contains(e.Hint, want) {
			t.Errorf("%v: next step %q, want one that says %q", e, e.Hint, want)
		}
	}
}

func TestEveryKindHasAHint(t *testing.T) {
	for _, kind := range Kinds {
		if hints[kind] == "" {
			t.Errorf("%s has none", kind)
		}
	}
	if len(hints) != len(Kinds) {
		t.Errorf("%d hints for %d kinds", len(hints), len(Kinds))
	}
}

// Whatever a stranger answers, naming it does not panic, is not taken as signed and
// says nothing of the answer but a known code.
func FuzzForeign(f *testing.F) {
	for _, c := range unsignedAnswers {
		f.Add(c.status, c.header["Ngrok-Error-Code"], c.header["Server"], c.header["Content-Type"], []byte(c.body))
	}
	c, err := New(Config{BaseURL: "http://example.com", Secret: testSecret(f, testKey)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, code, server, kind string, body []byte) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Ngrok-Error-Code": {code}, "Server": {server}, "Content-Type": {kind}}}
		e := c.unverified(res, body, auth.ErrUnsigned)
		if hints[e.Kind] == "" || e.Message == "" || len(e.Message) > 200 || strings.ContainsAny(e.Message, "\n\r\x1b") {
			t.Fatalf("%+v", e)
		}
	})
}
