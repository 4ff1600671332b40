package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// message is a request or an answer as the tunnel's operator has it in hand.
type message struct {
	method, path, query string
	status              int
	header              http.Header
	body                []byte
}

func (m message) clone() message {
	m.header, m.body = m.header.Clone(), bytes.Clone(m.body)
	return m
}

// exchanged is a request with the executor's answer, both as they were before any change.
type exchanged struct{ request, answer message }

// middleman is the operator of a tunnel: it has every request and every answer whole, keeps
// them, and can change them on the way.
type middleman struct {
	*httptest.Server
	target string

	mu   sync.Mutex
	past []exchanged
	// change returns the answer that the relay gets for a request; nil: nothing is changed.
	change func(m *middleman, request message) message
	met    int // requests that change was called for
}

func newMiddleman(t *testing.T, target string) *middleman {
	t.Helper()
	m := &middleman{target: target}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// tamper sets what happens to requests of a kind from now on, and forgets the past ones.
func (m *middleman) tamper(is func(message) bool, change func(m *middleman, request message) message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.met, m.change = 0, nil
	if change == nil {
		return
	}
	m.change = func(m *middleman, request message) message {
		if !is(request) {
			return m.forward(request)
		}
		m.mu.Lock()
		m.met++
		m.mu.Unlock()
		return change(m, request)
	}
}

// times returns how many requests were changed since tamper.
func (m *middleman) times() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.met
}

// before returns the first past exchange of a kind that has an answer with a body.
func (m *middleman) before(is func(message) bool) (exchanged, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.past {
		if is(e.request) && len(e.answer.body) > 0 {
			return exchanged{e.request.clone(), e.answer.clone()}, true
		}
	}
	return exchanged{}, false
}

// all returns the past exchanges.
func (m *middleman) all() []exchanged {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.past)
}

// forward sends a request to the executor and returns its answer.
func (m *middleman) forward(request message) message {
	u, err := url.Parse(m.target)
	if err != nil {
		panic(err)
	}
	u.Path, u.RawQuery = request.path, request.query
	req := &http.Request{
		Method: request.method, URL: u, Host: u.Host, Header: request.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(request.body)), ContentLength: int64(len(request.body)),
	}
	if len(request.body) == 0 {
		req.Body = http.NoBody
	}
	req.Header.Del("Content-Length")
	res, err := passOn.RoundTrip(req)
	if err != nil {
		return message{status: http.StatusBadGateway, header: http.Header{}}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return message{status: http.StatusBadGateway, header: http.Header{}}
	}
	res.Header.Del("Content-Length")
	return message{status: res.StatusCode, header: res.Header, body: body}
}

// passOn opens a connection for each request, so that none meets a connection that has just ended.
var passOn = &http.Transport{DisableCompression: true, DisableKeepAlives: true}

// ServeHTTP implements http.Handler.
func (m *middleman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request := message{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: r.Header.Clone(), body: body}
	m.mu.Lock()
	change := m.change
	m.mu.Unlock()
	var answer message
	if change != nil {
		answer = change(m, request.clone())
	} else {
		answer = m.forward(request)
		m.mu.Lock()
		m.past = append(m.past, exchanged{request, answer.clone()})
		m.mu.Unlock()
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body)
}

func isSubmit(m message) bool {
	return m.method == http.MethodPost && m.path == contract.PathExecutions
}

// flipped returns text with one bit of one byte changed; i counts from the end if negative.
func flipped(text []byte, i int) []byte {
	if i < 0 {
		i += len(text)
	}
	text = bytes.Clone(text)
	text[i] ^= 1
	return text
}

// headerFlip changes one character in the middle of a header's value.
func headerFlip(m message, name string) message {
	values := m.header[name]
	if len(values) == 0 {
		panic("the message has no " + name)
	}
	value := []byte(values[0])
	i := len(value) / 2
	if value[i] == 'A' {
		value[i] = 'B'
	} else {
		value[i] = 'A'
	}
	m.header[name] = []string{string(value)}
	return m
}

// changes are what can be done to any message with a sealed body.
func changes() map[string]func(message) message {
	all := map[string]func(message) message{
		"no body":                      func(m message) message { m.body = nil; return m },
		"a byte appended":              func(m message) message { m.body = append(m.body, 0); return m },
		"the body twice":               func(m message) message { m.body = append(m.body, m.body...); return m },
		"no Content-Encoding":          func(m message) message { delete(m.header, "Content-Encoding"); return m },
		"Content-Encoding: gzip":       func(m message) message { m.header.Set("Content-Encoding", "gzip"); return m },
		"Content-Encoding twice":       func(m message) message { m.header.Add("Content-Encoding", "aes128gcm"); return m },
		"no Signature":                 func(m message) message { delete(m.header, "Signature"); return m },
		"no Signature-Input":           func(m message) message { delete(m.header, "Signature-Input"); return m },
		"no Executor-Instance":         func(m message) message { delete(m.header, "Executor-Instance"); return m },
		"another Signature":            func(m message) message { return headerFlip(m, "Signature") },
		"another Signature-Input":      func(m message) message { return headerFlip(m, "Signature-Input") },
		"another Executor-Instance":    func(m message) message { return headerFlip(m, "Executor-Instance") },
		"covered without the body":     func(m message) message { return without(m, ` "content-encoding"`) },
		"covered without the executor": func(m message) message { return without(m, ` "executor-instance"`) },
		"an unsealed body": func(m message) message {
			m.body = []byte(`{"code":"raise SystemExit","status":"succeeded","result":"forged"}`)
			return m
		},
	}
	for name, i := range map[string]int{"salt": 3, "record size": 17, "key id length": 20, "first record": 30, "tag": -1} {
		all["a bit of the "+name] = func(m message) message { m.body = flipped(m.body, i); return m }
	}
	return all
}

func without(m message, component string) message {
	input := m.header.Get("Signature-Input")
	m.header.Set("Signature-Input", strings.Replace(input, component, "", 1))
	return m
}

// tunnel is an executor behind a middleman, and a host.
type tunnel struct {
	*middleman
	t    *testing.T
	vm   *harness.Executor
	host *harness.Host
	dir  string // the laptop's

	calls int
}

// another returns code that differs from that of every call before. The same code would be the same
// run, because a relay asks for the run of a call that got no answer.
func (u *tunnel) another(code string) string {
	u.calls++
	return fmt.Sprintf("%s # call %d", code, u.calls)
}

func newTunnel(t *testing.T, hold string) *tunnel {
	t.Helper()
	e := borrowExecutor(t, stacks.Old(t))
	m := newMiddleman(t, e.Ready.LocalURL)
	dir := t.TempDir()
	h := startHost(t, m.URL, harness.HostConfig{Dir: dir, Env: []string{"RELAY_HOLD=" + hold, "LOCAL_SAVE_DIR=" + dir + "/saved"}})
	u := &tunnel{middleman: m, t: t, vm: e, host: h, dir: dir}
	must(t, harness.Poll(within.Context(t), func() (bool, error) { // the same call finds the same run
		return quick(t, h, "runs = []").Fields["success"] == true, nil
	}))
	return u
}

// during makes a call while all requests of a kind are changed.
func (u *tunnel) during(what string, is func(message) bool, change func(*middleman, message) message, tool string, args map[string]any) harness.Answer {
	u.t.Helper()
	u.tamper(is, change)
	a := call(u.t, u.host, tool, args)
	if u.times() == 0 {
		u.t.Errorf("%s: nothing was changed", what)
	}
	u.tamper(nil, nil)
	if strings.Contains(a.Text, "forged") {
		u.t.Errorf("%s: the answer: %s", what, a.Text)
	}
	return a
}

// refused is during for a run that must fail with one of the errors.
func (u *tunnel) refused(what, code string, is func(message) bool, change func(*middleman, message) message, errors ...string) {
	u.t.Helper()
	a := u.during(what, is, change, "run_code_quick", map[string]any{"code": u.another(code)})
	if !a.IsError || !slices.Contains(errors, a.Error()) {
		u.t.Errorf("%s: the answer: %s; want the error %q", what, a.Text, errors)
	}
	if a.Error() == "bad_request" && !strings.Contains(a.Text, "another network") {
		u.t.Errorf("%s: the answer does not name the cause: %s", what, a.Text)
	}
}

// ran returns what the kernel did since the last call.
func (u *tunnel) ran() string {
	u.t.Helper()
	a := quick(u.t, u.host, "done, runs = runs, []\ndone")
	want(u.t, a, map[string]any{"success": true})
	return a.String("result")
}

// What the executor says of a request: its signature is wrong, or it does not open.
var refusals = []string{"wrong_secret", "bad_request"}

func TestAChangedRequestDoesNothing(t *testing.T) {
	u := newTunnel(t, "30s")
	all := changes()
	all["another method"] = func(m message) message { m.method = http.MethodPut; return m }
	all["another route"] = func(m message) message { m.path = contract.PathKernelRestart; return m }
	all["a query"] = func(m message) message { m.query = "s=AAAA"; return m }
	old, ok := u.before(isSubmit)
	if !ok {
		t.Fatal("no run was seen")
	}
	all["the body of an earlier request"] = func(m message) message { m.body = old.request.body; return m }
	all["the body of an answer"] = func(m message) message { m.body = old.answer.body; return m }
	all["an answer"] = func(m message) message { m.header, m.body = old.answer.header, old.answer.body; return m }
	for what, change := range all {
		u.refused(what, "runs.append(1)", isSubmit, func(m *middleman, request message) message { return m.forward(change(request)) }, refusals...)
		if ran := u.ran(); ran != "[]" {
			t.Errorf("%s: the code ran: %s", what, ran)
		}
	}
	// The executor says to the earlier request that it is a replay. That is no answer to this one.
	u.refused("the head of an earlier request", "runs.append(1)", isSubmit, func(m *middleman, request message) message {
		request.header = old.request.header
		return m.forward(request)
	}, "bad_answer")
	if ran := u.ran(); ran != "[]" {
		t.Errorf("with the head of an earlier request the code ran: %s", ran)
	}
	want(t, quick(t, u.host, "runs.append(2)"), map[string]any{"success": true})
	if ran := u.ran(); ran != "[2]" {
		t.Errorf("the unchanged request ran %s", ran)
	}
}

// The operator sends everything again that it has seen, to the same executor.
func TestAllRequestsOfASessionSentAgainDoNothing(t *testing.T) {
	u := newTunnel(t, "30s")
	asked := quick(t, u.host, "runs.append(input())")
	want(t, call(t, u.host, "provide_input", map[string]any{"execution_id": asked.String("execution_id"), "text": "1"}), map[string]any{"success": true})
	want(t, call(t, u.host, "get_execution", map[string]any{"execution_id": asked.String("execution_id"), "wait_seconds": 20}), map[string]any{"status": "succeeded"})
	want(t, call(t, u.host, "cleanup_colab", nil), map[string]any{"success": true})
	want(t, call(t, u.host, "restart_kernel", nil), map[string]any{"success": true})
	want(t, quick(t, u.host, "runs = ['after the restart']"), map[string]any{"success": true})

	past := u.all()
	seen := map[string]bool{}
	for _, e := range past {
		seen[e.request.method+" "+e.request.path[strings.LastIndex(e.request.path, "/"):]] = true
		if e.request.path == contract.PathHealth && e.request.header.Get("Signature") == "" {
			continue
		}
		answer := u.forward(e.request)
		if answer.status != http.StatusUnauthorized || len(answer.body) > 600 {
			t.Errorf("%s %s again: status %d, %d bytes", e.request.method, e.request.path, answer.status, len(answer.body))
		}
	}
	for _, kind := range []string{"POST /executions", "POST /input", "POST /cleanup", "POST /restart"} {
		if !seen[kind] {
			t.Errorf("the session had no %s: %v", kind, seen)
		}
	}
	if ran := u.ran(); ran != "['after the restart']" {
		t.Errorf("the kernel has %s", ran)
	}
}

func TestHealthHasTheOldBridgesFieldsAndLeaksNothing(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	answer, err := http.Get(e.Ready.LocalURL + "/health")
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(body, &fields))
	for _, name := range []string{"status", "uptime_minutes", "memory_available_gb", "memory_used_pct", "version", "protocol"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if len(fields) != 6 {
		t.Errorf("health has %v", fields)
	}
}

// The executor runs the code, but its answer is lost.
func TestLostAnswerDoesNotRunTheCodeTwice(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		m := newMiddleman(t, e.Ready.LocalURL)
		h := startHost(t, m.URL, harness.HostConfig{})
		quick(t, h, "n = 0")
		m.tamper(isSubmit, func(m *middleman, request message) message {
			answer := m.forward(request)
			if m.times() == 1 {
				panic(http.ErrAbortHandler)
			}
			return answer
		})
		want(t, quick(t, h, "n += 1\nprint('ran', n)"), map[string]any{"success": true, "stdout": "ran 1\n"})
		if n := m.times(); n != 2 {
			t.Errorf("%d submits were sent", n)
		}
		want(t, quick(t, h, "n"), map[string]any{"result": "1"})
	})
}
