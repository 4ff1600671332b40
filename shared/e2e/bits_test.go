package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// One bit of each byte of a request is changed, under LONG every bit. Each request is a new
// one, so that no nonce is used twice, and appends its number to a list.
func TestAChangedBitOfARequestDoesNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python})
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{})
	want(t, quick(t, h, "runs = []"), map[string]any{"success": true})

	r, instance := rand.New(rand.NewPCG(1, 1)), instanceOf(t, e)
	raw, _ := rawSubmit(t, e, instance, 0)
	covers := map[int]bool{}
	sent := 0
	for at := range raw {
		bits := []int{r.IntN(8)}
		if longSuites() {
			bits = r.Perm(8)
		}
		for _, bit := range bits {
			sent++
			raw, covered := rawSubmit(t, e, instance, sent)
			covers[sent] = covered[at]
			raw[at] ^= 1 << bit
			deliver(t, e, sent, raw)
		}
	}
	var ran []int
	must(t, harness.Poll(within(t), func() (bool, error) { // the run that reads may come before some of them
		before := len(ran)
		err := json.Unmarshal([]byte(quick(t, h, "runs").String("result")), &ran)
		return len(ran) >= 50 && len(ran) == before, err
	}))
	for _, n := range ran {
		if covers[n] {
			t.Errorf("request %d ran although a bit was changed that the signature or a record covers", n)
		}
	}
	t.Logf("%d bits changed, %d requests ran", sent, len(ran))
	// A changed User-Agent, for example, is no reason to refuse. Under LONG the executor's rate
	// limit refuses most of these.
	if len(ran) < 50 {
		t.Errorf("only %d requests ran of those of which no covered bit was changed: the test does not reach the executor", len(ran))
	}
}

// rawSubmit returns a sealed request with code that appends n, as bytes, and which of them
// must not be changed.
func rawSubmit(t *testing.T, e *harness.Executor, instance string, n int) (raw []byte, covered []bool) {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, e.Ready.LocalURL+contract.PathExecutions, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(contract.Submit{RequestID: fmt.Sprintf("bit-%05d", n), Code: fmt.Sprintf("runs.append(%d)", n), WaitSeconds: 5})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "a test of each bit")
	req.Header.Set(contract.HeaderInstance, instance)
	linetest.Seal(t, key, req, text, time.Now())
	req.Close = true
	var out bytes.Buffer
	if err := req.Write(&out); err != nil {
		t.Fatal(err)
	}
	raw = out.Bytes()
	return raw, coveredIn(raw)
}

func coveredIn(raw []byte) []bool {
	covered := make([]bool, len(raw))
	mark := func(from, to int) {
		for i := from; i < to; i++ {
			covered[i] = true
		}
	}
	head := bytes.Index(raw, []byte("\r\n\r\n"))
	mark(head+4, len(raw))
	mark(0, bytes.Index(raw, []byte(" HTTP/")))
	for _, name := range []string{auth.HeaderSignature, auth.HeaderSignatureInput, auth.HeaderContentEncoding, contract.HeaderInstance} {
		from := bytes.Index(raw, []byte("\r\n"+name+": ")) + len("\r\n"+name+": ")
		mark(from, from+bytes.IndexByte(raw[from:], '\r'))
	}
	return covered
}

// instanceOf asks the executor for its name and start, as a relay does first.
func instanceOf(t *testing.T, e *harness.Executor) string {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, e.Ready.LocalURL+contract.PathKernel, nil)
	if err != nil {
		t.Fatal(err)
	}
	linetest.Seal(t, key, req, nil, time.Now())
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.Header.Get(contract.HeaderInstance)
}

// deliver sends raw and waits for the answer or the end of the connection. The executor
// allows few unsigned requests an address, so every few requests come from another one.
func deliver(t *testing.T, e *harness.Executor, n int, raw []byte) {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n/40>>8), byte(n/40))}}
	conn, err := from.DialContext(t.Context(), "tcp", strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(raw); err != nil {
		return
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, conn)
}
