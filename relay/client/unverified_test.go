package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	"ngrok offline, in text":  {404, map[string]string{"Content-Type": "text/plain"}, "The endpoint x is offline.\r\n\r\nERR_NGROK_3200", KindTunnelOffline, "ERR_NGROK_3200"},
	"ngrok bandwidth":         {403, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_725"}, "", KindTunnelQuota, "bandwidth"},
	"ngrok interstitial":      {200, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_6024", "Content-Type": "text/html"}, "<html>", KindTunnelError, "warning page"},
	"ngrok code forged":       {500, map[string]string{"Ngrok-Error-Code": "ERR_NGROK_<script>"}, "", KindNotExecutor, "500"},
	"ngrok in a good page":    {200, map[string]string{"Content-Type": "text/html"}, "about ERR_NGROK_3200", KindNotExecutor, "not an executor"},
	"Cloudflare error code":   {530, map[string]string{"Server": "cloudflare"}, "error code: 1033", KindTunnelOffline, "1033"},
	"some proxy":              {502, nil, "<html>Bad Gateway</html>", KindTunnelError, "502"},
	"another secret":          {401, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"unauthorized","message":"m"}}`, KindWrongSecret, "secret"},
	"unsigned rate limit":     {429, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"rate_limited"}}`, KindRateLimited, "minute"},
	"our JSON without a name": {200, map[string]string{"Content-Type": "application/json"}, `{"kernel_id":"k","status":"idle"}`, KindNotExecutor, "not an executor"},
	"an unsigned new_instance": {409, map[string]string{"Content-Type": "application/json"}, `{"error":{"code":"new_instance"}}`,
		KindNotExecutor, "409"},
	"nothing at all": {204, nil, "", KindBadAnswer, "is empty (HTTP 204)"},
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
			for method, want := range map[string]bool{http.MethodGet: false, http.MethodPost: true} { // a GET does nothing
				if _, err := client.send(t.Context(), request{method: method, path: contract.PathKernel, instance: contract.Instance{ID: "i", Start: "s"}}); MayHaveArrived(err) != want {
					t.Errorf("something may have been done by a %s: %v, want %v: %v", method, !want, want, err)
				}
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

// Some tunnels recompress or rewrite what passes through.
func TestAnswerChangedOnItsWay(t *testing.T) {
	for name, change := range map[string]func(*httptest.ResponseRecorder){
		"recompressed": func(a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Encoding", "aes128gcm, gzip")
		},
		"a bit":          func(a *httptest.ResponseRecorder) { a.Body.Bytes()[a.Body.Len()/2] ^= 1 },
		"other status":   func(a *httptest.ResponseRecorder) { a.Code = http.StatusAccepted },
		"other instance": func(a *httptest.ResponseRecorder) { a.Header().Set(contract.HeaderInstance, "other") },
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
