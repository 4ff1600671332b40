package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/within"
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
	must(f, err)
	f.Fuzz(func(t *testing.T, status int, code, server, kind string, body []byte) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Ngrok-Error-Code": {code}, "Server": {server}, "Content-Type": {kind}}}
		e := c.unverified(res, body, auth.ErrUnsigned)
		if hints[e.Kind] == "" || e.Message == "" || len(e.Message) > 200 || strings.ContainsAny(e.Message, "\n\r\x1b") {
			t.Fatalf("%+v", e)
		}
	})
}

// unsigned answers every request but health as an executor does to a stranger.
func unsigned(t *testing.T, e *executor, protocol int) {
	t.Helper()
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: protocol, Version: "\x1b[31mevil"})
		} else {
			writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		}
		return true
	})
}

func TestAnExecutorOfAnotherProtocolIsNamedAndWhatToUpdate(t *testing.T) {
	for protocol, step := range map[int]string{
		contract.Protocol - 1: "Update the executor",
		contract.Protocol + 1: "Update the relay",
	} {
		e := newExecutor(t, anything)
		c := e.acquainted(t)
		unsigned(t, e, protocol)
		_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		got := wantKind(t, err, KindWrongProtocol)
		both := fmt.Sprintf("uses protocol %d and this relay protocol %d", protocol, contract.Protocol)
		if !strings.Contains(got.Message, both) || !strings.Contains(got.Message, " is older") || !strings.Contains(got.Hint, step) {
			t.Errorf("got %q, %q", got.Message, got.Hint)
		}
		if strings.Contains(got.Message+got.Hint, "evil") || !MayHaveArrived(err) {
			t.Errorf("got %q, %q; may have arrived: %v", got.Message, got.Hint, MayHaveArrived(err))
		}
	}
}

// endlessAnswers are beginnings of answers that never end, and what follows them, again and again.
// Of some, the head never ends.
var endlessAnswers = map[string]struct {
	first, further string
	headless       bool
}{
	"switches protocol":              {first: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	"switches protocol, and goes on": {first: "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", further: "x"},
	"hints, and is silent":           {first: "HTTP/1.1 103 Early Hints\r\n\r\n", headless: true},
	"hints without end":              {further: "HTTP/1.1 103 Early Hints\r\n\r\n", headless: true},
	"headers without end":            {first: "HTTP/1.1 200 OK\r\n", further: "A: b\r\n", headless: true},
	"a page that trickles":           {first: "HTTP/1.1 404 Not Found\r\n\r\n", further: "x"},
	"a piece that never comes":       {first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"},
}

// endlessServer answers each request with an endless answer before it has read the whole request.
// answered gets an element for each answer that has begun.
func endlessServer(t *testing.T, first, further string) (url string, answered <-chan bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	begun := make(chan bool, 100)
	var serving sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { l.Close(); end(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			serving.Go(func() { answerEndlessly(conn, first, further, begun) })
		}
	})
	return "http://" + l.Addr().String(), begun
}

// answerEndlessly returns when the client has closed the connection.
func answerEndlessly(conn net.Conn, first, further string, begun chan<- bool) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return
	}
	_, _ = io.WriteString(conn, first)
	select {
	case begun <- true:
	default:
	}
	if further == "" {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	closed := make(chan bool)
	go func() { defer close(closed); _, _ = io.Copy(io.Discard, conn) }()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-closed:
			return
		case <-pace.C:
			if _, err := io.WriteString(conn, further); err != nil {
				conn.Close()
				<-closed
				return
			}
		}
	}
}

// endlessCalls are calls of each form that a request and an answer can have.
var endlessCalls = map[string]func(ctx context.Context, c *Client) error{
	"health": func(ctx context.Context, c *Client) error { _, err := c.Health(ctx); return err },
	"a run": func(ctx context.Context, c *Client) error {
		_, err := c.Submit(ctx, contract.Submit{Code: "1", WaitSeconds: 45})
		return err
	},
	"a part of a download": func(ctx context.Context, c *Client) error {
		_, err := c.Content(ctx, Part{Path: "/a", ETag: "e"}, 1, io.Discard)
		return err
	},
	"a part of an upload": func(ctx context.Context, c *Client) error {
		err := c.PutPart(ctx, "0123456789abcdef0123456789abcdef", bytes.NewReader(make([]byte, 8<<20)), contract.Range{Length: 8 << 20})
		return err
	},
}

// A call ends with its context, whatever has begun to answer.
func TestNoAnswerOutlivesItsCall(t *testing.T) {
	for name, a := range endlessAnswers {
		for what, call := range endlessCalls {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				url, answered := endlessServer(t, a.first, a.further)
				network := &watched{NewTransport(), make(chan bool, 100)}
				c := newClient(t, Config{BaseURL: url, Secret: testSecret(t, testKey), Transport: network})
				c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, c) }()
				if <-answered; !a.headless {
					select {
					case <-network.read:
					case err := <-ended:
						ended <- err
					}
				}
				cancel()
				if err := within.Receive(t, "the end of a call whose context ended", ended); err == nil {
					t.Error("it succeeded")
				}
			})
		}
	}
}

// An answer that switches to another protocol is refused before its body is read, and says so. The
// code of such a submit may run.
func TestAnAnswerThatSwitchesProtocolIsRefusedAtOnce(t *testing.T) {
	for name, a := range endlessAnswers {
		if !strings.HasPrefix(name, "switches") {
			continue
		}
		url, _ := endlessServer(t, a.first, a.further)
		c := newClient(t, Config{BaseURL: url, Secret: testSecret(t, testKey)})
		c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
		_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		if e := wantKind(t, err, KindNotExecutor); !strings.Contains(e.Message, "HTTP 101") || !MayRun(err) {
			t.Errorf("%s: %v, may run: %v", name, err, MayRun(err))
		}
		_, err = c.Health(t.Context())
		wantKind(t, err, KindNotExecutor)
	}
}

// watched is the network, and tells when an answer's body is being read.
type watched struct {
	*http.Transport
	read chan bool
}

func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.Transport.RoundTrip(req)
	if err == nil {
		res.Body = watchedBody{res.Body, w.read}
	}
	return res, err
}

type watchedBody struct {
	io.ReadCloser
	read chan<- bool
}

func (b watchedBody) Read(p []byte) (int, error) {
	select {
	case b.read <- true:
	default:
	}
	return b.ReadCloser.Read(p)
}
