package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
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
