package attack

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// captured is a request of the owner that the tunnel's operator holds back: signed, sealed and
// never delivered.
type captured struct {
	method, target, version string
	headers                 []string // lines
	body                    string
}

// capture signs a submit of code that appends n to ran.
func (s *stand) capture(n int) captured {
	s.t.Helper()
	return s.captureOf(http.MethodPost, contract.PathExecutions, submitOf(n), time.Now())
}

func submitOf(n int) []byte {
	text, err := json.Marshal(contract.Submit{RequestID: rand.Text(), Code: fmt.Sprintf("ran.append(%d)", n)})
	if err != nil {
		panic(err)
	}
	return text
}

// captureOf signs a request.
func (s *stand) captureOf(method, target string, text []byte, created time.Time) captured {
	s.t.Helper()
	req, err := http.NewRequest(method, s.vm.Ready.LocalURL+target, nil)
	must(s.t, err)
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, s.instance())
	}
	linetest.Seal(s.t, s.key, req, text, created)
	c := captured{method: method, target: req.URL.RequestURI(), version: "HTTP/1.1", headers: []string{"Host: x"}}
	for name := range req.Header {
		c.headers = append(c.headers, name+": "+req.Header.Get(name))
	}
	slices.Sort(c.headers)
	if req.ContentLength > 0 {
		body, err := io.ReadAll(req.Body)
		must(s.t, err)
		c.body = string(body)
		c.headers = append(c.headers, fmt.Sprint("Content-Length: ", len(body)))
	}
	return c
}

// instance asks the executor once for its name and start.
func (s *stand) instance() string {
	s.t.Helper()
	if s.name == "" {
		req, err := http.NewRequest(http.MethodGet, s.vm.Ready.LocalURL+contract.PathKernel, nil)
		must(s.t, err)
		linetest.Seal(s.t, s.key, req, nil, time.Now())
		res, err := s.http.RoundTrip(req)
		must(s.t, err)
		s.name = res.Header.Get(contract.HeaderInstance)
		must(s.t, res.Body.Close())
	}
	return s.name
}

func (c captured) head() string {
	return c.method + " " + c.target + " " + c.version + "\r\n" + strings.Join(c.headers, "\r\n") + "\r\n\r\n"
}

func (c captured) raw() string { return c.head() + c.body }

// last is raw with the wish that the executor closes the connection after the answer.
func (c captured) last() string {
	return c.with(func(c *captured) { c.headers = append(c.headers, "Connection: close") })
}

// with returns c after change.
func (c captured) with(change func(*captured)) string {
	c.headers = slices.Clone(c.headers)
	change(&c)
	return c.raw()
}

// header replaces the lines of a header.
func (c captured) header(name string, lines ...string) string {
	return c.with(func(c *captured) {
		c.drop(name)
		c.headers = append(c.headers, lines...)
	})
}

func (c *captured) drop(name string) {
	c.headers = slices.DeleteFunc(c.headers, func(line string) bool { return strings.HasPrefix(line, name+": ") })
}

// framed replaces the length and the body.
func (c captured) framed(line, body string) string {
	return c.with(func(c *captured) {
		c.drop("Content-Length")
		c.headers, c.body = append(c.headers, strings.Split(line, "\r\n")...), body
	})
}

// inChunks is text in chunks of a size, without the line after the trailer.
func inChunks(text string, size int, extension string) string {
	var b strings.Builder
	for piece := range slices.Chunk([]byte(text), size) {
		fmt.Fprintf(&b, "%x%s\r\n%s\r\n", len(piece), extension, piece)
	}
	return b.String() + "0\r\n"
}
