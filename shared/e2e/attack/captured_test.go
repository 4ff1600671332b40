package attack

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
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

// delivery is what the operator makes of a captured request, and whether its code runs.
type delivery struct {
	name string
	raw  func(c captured) string
	runs bool
}

// The operator delivers captured requests in other forms. What is not covered by the signature
// may change; everything else, and each form that a proxy could read in another way, runs
// nothing.
func TestChangedFormsOfCapturedRequests(t *testing.T) {
	s := newStand(t)
	var want []int
	n := 0
	tables := map[string][]delivery{
		"harmless": harmless(), "lines": changedLines(), "bodies": changedBodies(), "hidden": hidden(),
	}
	for _, kind := range slices.Sorted(maps.Keys(tables)) {
		for _, d := range tables[kind] {
			if n++; n%25 == 0 {
				s.workHonestly()
			}
			if d.runs {
				want = append(want, n)
			}
			got := deliver(t, s.address, n, d.raw(s.capture(n)))
			if !d.runs && got.headers != nil && got.headers[0].Get(auth.HeaderSignature) == "" {
				wantNothingLearned(t, d.name, got)
			}
		}
		t.Logf("%s: %d cases", kind, len(tables[kind]))
	}
	t.Logf("%d cases", n)
	s.workHonestly()
	s.end(want)
}

// harmless are forms that change nothing of what the signature covers.
func harmless() []delivery {
	add := func(lines ...string) func(captured) string {
		return func(c captured) string {
			return c.with(func(c *captured) { c.headers = append(c.headers, lines...) })
		}
	}
	chunks := func(size int, extension, trailer string) func(captured) string {
		return func(c captured) string {
			return c.framed("Transfer-Encoding: chunked", inChunks(c.body, size, extension)+trailer+"\r\n")
		}
	}
	return []delivery{
		{"unchanged", captured.raw, true},
		{"lower-case names", func(c captured) string {
			return c.with(func(c *captured) {
				for i, line := range c.headers {
					name, value, _ := strings.Cut(line, ":")
					c.headers[i] = strings.ToLower(name) + ":\t " + value + " \t"
				}
			})
		}, true},
		{"other order", func(c captured) string { return c.with(func(c *captured) { slices.Reverse(c.headers) }) }, true},
		{"another Host", func(c captured) string { return c.header("Host", "Host: 169.254.169.254:80") }, true},
		{"an absolute URL", func(c captured) string { return c.with(func(c *captured) { c.target = "https://y" + c.target }) }, true},
		{"HTTP/1.0", func(c captured) string { return c.with(func(c *captured) { c.version = "HTTP/1.0" }) }, true},
		{"Expect", add("Expect: 100-continue"), true},
		{"an upgrade", add("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"), true},
		{"overrides of method and path", add("X-HTTP-Method-Override: GET", "X-Original-URL: /health", "X-Rewrite-URL: /health"), true},
		{"a length twice", func(c captured) string {
			return c.with(func(c *captured) { c.headers = append(c.headers, c.headers[len(c.headers)-1]) })
		}, true},
		{"chunks of a byte", chunks(1, "", ""), true},
		{"chunks with a trailer", chunks(100, "", "Signature: sig1=:AAAA:\r\nContent-Length: 1\r\n"), true},
		{"chunks and a length", func(c captured) string {
			return c.framed("Content-Length: 3\r\nTransfer-Encoding: chunked", inChunks(c.body, 100, "")+"\r\n")
		}, true},
		{"itself behind it", func(c captured) string { return strings.Repeat(c.raw(), 20) }, true},
		{"a stranger behind it", func(c captured) string {
			return c.raw() + message("POST", "/v1/executions", "Content-Length: 3") + "x=1"
		}, true},
	}
}

// changedLines are other targets and more headers.
func changedLines() []delivery {
	var all []delivery
	for _, target := range []string{
		"//v1/executions", "/v1/./executions", "/v1/../v1/executions", "/v1/executions/", "/v1/%65xecutions", "/v1/executions;x", "/v1/executions%00", "/v1/executions#x",
		"/v1/executions?x", "/v1/executions?s=AAAA", "http://y//v1/executions", "*", "/", "/v1/shutdown", "/v1/uploads", "/health", "/v1/executions/x/interrupt",
	} {
		all = append(all, delivery{"target " + target, func(c captured) string { return c.with(func(c *captured) { c.target = target }) }, false})
	}
	for _, line := range []string{
		"A : b", "A: \x00", " folded", "Host: y", "Transfer-Encoding: gzip, chunked", "Content-Length: 1", "Expect: x", "Content-Encoding: gzip", "Executor-Instance: x/y",
		"Signature: sig1=:AAAA:", "Signature-Input:", "Padding: " + strings.Repeat("x", contract.MaxHeaderBytes),
	} {
		all = append(all, delivery{"and the header " + clip(line), func(c captured) string {
			return c.with(func(c *captured) { c.headers = append(c.headers, line) })
		}, false})
	}
	return all
}

// changedBodies are bodies that are longer, shorter or others than what was sealed.
func changedBodies() []delivery {
	length := func(n int) string { return fmt.Sprint("Content-Length: ", n) }
	return []delivery{
		{"none", func(c captured) string { return c.framed(length(0), "") }, false},
		{"no length", func(c captured) string { return c.framed("X: y", c.body) }, false},
		{"a length of one more", func(c captured) string { return c.framed(length(len(c.body)+1), c.body) }, false},
		{"one byte more", func(c captured) string { return c.framed(length(len(c.body)+1), c.body+"\x00") }, false},
		{"9 MiB more", func(c captured) string { return c.framed(length(len(c.body)+9<<20), c.body+strings.Repeat("x", 9<<20)) }, false},
		{"a record size of 4 GiB", func(c captured) string {
			return c.with(func(c *captured) { c.body = c.body[:16] + "\xff\xff\xff\xff" + c.body[20:] })
		}, false},
		{"a key id of 255 bytes", func(c captured) string {
			return c.with(func(c *captured) { c.body = c.body[:20] + "\xff" + c.body[21:] })
		}, false},
		{"chunks without the last one", func(c captured) string {
			return c.framed("Transfer-Encoding: chunked", strings.TrimSuffix(inChunks(c.body, 100, ""), "0\r\n"))
		}, false},
		{"a chunk of 2^63 bytes", func(c captured) string { return c.framed("Transfer-Encoding: chunked", "8000000000000000\r\n"+c.body) }, false},
		{"9 MiB of chunk extensions", func(c captured) string {
			return c.framed("Transfer-Encoding: chunked", inChunks(c.body, 1, ";"+strings.Repeat("x", 20<<10)))
		}, false},
	}
}

// hidden are whole captured requests inside or behind requests of a stranger, which the
// executor must not take for requests.
func hidden() []delivery {
	var all []delivery
	for what, wrap := range map[string]func(raw string) string{
		"in a body": func(raw string) string { return message("POST", "/", fmt.Sprint("Content-Length: ", len(raw))) + raw },
		"in a chunk": func(raw string) string {
			return message("POST", "/", "Transfer-Encoding: chunked") + inChunks(raw, 1<<20, "") + "\r\n"
		},
		"behind chunks":        func(raw string) string { return message("POST", "/", "Transfer-Encoding: chunked") + "0\r\n\r\n" + raw },
		"behind a refused one": func(raw string) string { return message("GET", "/v1/kernel") + raw },
		"behind health":        func(raw string) string { return message("GET", "/health") + raw },
		"behind CONNECT":       func(raw string) string { return "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n" + raw },
		"behind an upgrade": func(raw string) string {
			return message("GET", "/health", "Upgrade: websocket", "Connection: Upgrade") + raw
		},
		"behind 501":          func(raw string) string { return message("POST", "/", "Transfer-Encoding: x") + raw },
		"behind 431":          func(raw string) string { return message("POST", "/", "A: "+strings.Repeat("x", 40<<10)) + raw },
		"as a header's value": func(raw string) string { return "GET / HTTP/1.1\r\nHost: x\r\nA: " + raw },
		"in a folded header": func(raw string) string {
			return "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n " + strings.ReplaceAll(raw, "\r\n", "\r\n ") + "\r\n\r\n"
		},
	} {
		all = append(all, delivery{what, func(c captured) string { return wrap(c.raw()) }, false})
	}
	return all
}

// Tunnels send requests of strangers and of the owner over one connection. If tunnel and
// executor disagree where a stranger's request ends, the owner gets answers to what the
// stranger hid in it. So the connection ends with each such request.
func TestAStrangerOnTheOwnersConnectionHidesNoRequest(t *testing.T) {
	s := newStand(t)
	n := 0
	for _, lines := range []string{
		"Transfer-Encoding: chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: CHUNKED\r\nContent-Length: 0", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5",
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: +5", "Content-Length : 5", "Expect: x", "A: \x00",
	} {
		for _, first := range []string{message("POST", "/v1/executions", lines), message("GET", "/v1/kernel", lines), message("POST", "/health", lines)} {
			n++
			own := s.captureOf(http.MethodGet, contract.PathKernel, nil, time.Now())
			got := ask(t, s.address, n, own.raw()+first+"0\r\n\r\n"+smuggled)
			if !regexp.MustCompile(`^200 (400|401|417|501)$`).MatchString(got.statuses) {
				t.Errorf("%q: answered %s", first, got.statuses)
			}
		}
		s.workHonestly()
	}
	t.Logf("%d cases", n)
	s.end([]int{})
}

// The same requests arrive on 40 connections at the same moment.
func TestConcurrentReplaysRunOnce(t *testing.T) {
	s := newStand(t)
	const connections = 40
	var want []int
	for n := range 5 {
		raw := s.capture(n).last()
		want = append(want, n)
		var accepted [connections]string
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range connections {
			conn := dial(t, s.address, i)
			all.Go(func() {
				defer conn.Close()
				<-start
				if _, err := io.WriteString(conn, raw); err != nil {
					t.Error(err)
				}
				accepted[i] = read(t, conn).statuses
			})
		}
		close(start)
		all.Wait()
		slices.Sort(accepted[:])
		if accepted[0] != "200" || accepted[1] != "401" || accepted[connections-1] != "401" {
			t.Errorf("answered %v", accepted)
		}
		s.workHonestly()
	}
	s.end(want)
}
