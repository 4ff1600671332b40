package page

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// attempt is a request as a hostile program writes it. PORT and TOKEN stand for the right
// ones.
type attempt struct {
	line    string
	headers []string
	body    string
}

// good returns the request of Colab's page.
func good() attempt {
	return attempt{line: "GET /?access_token=TOKEN HTTP/1.1", headers: []string{
		"Host: localhost:PORT", "Connection: Upgrade", "Upgrade: websocket", "Origin: https://colab.research.google.com",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: mcp",
	}}
}

func line(s string) attempt { a := good(); a.line = s; return a }

func target(s string) attempt { return line("GET " + s + " HTTP/1.1") }

// with replaces the headers of a name by others; a name alone removes them.
func with(name string, values ...string) attempt { return good().with(name, values...) }

func (a attempt) with(name string, values ...string) attempt {
	var kept []string
	for _, h := range a.headers {
		if !strings.HasPrefix(h, name+":") {
			kept = append(kept, h)
		}
	}
	for _, v := range values {
		kept = append(kept, name+": "+v)
	}
	a.headers = kept
	return a
}

func origin(values ...string) attempt { return with("Origin", values...) }
func host(values ...string) attempt   { return with("Host", values...) }

// behind is a refused request without a token, and the page's own in the same connection.
func behind(header string) attempt {
	a, second := target("/").with("Origin", "https://colab.google.com"), good()
	if strings.HasPrefix(header, "Origin:") {
		a = a.with("Origin")
	}
	a.headers = append(a.headers, header)
	a.body = second.line + "\r\n" + strings.Join(append(second.headers, "", ""), "\r\n")
	return a
}

// hostile are requests and the status of their answer; 4 stands for any from 400 to 499.
var hostile = map[string]map[string]struct {
	attempt attempt
	want    int
}{
	"origin": {
		"none":                  {origin(), 403},
		"null":                  {origin("null"), 403},
		"foreign":               {origin("https://evil.example"), 403},
		"lookalike suffix":      {origin("https://colab.research.google.com.evil.example"), 403},
		"lookalike prefix":      {origin("https://evilcolab.research.google.com"), 403},
		"subdomain":             {origin("https://x.colab.research.google.com"), 403},
		"the right one as user": {origin("https://colab.research.google.com@evil.example"), 403},
		"ours":                  {origin("http://localhost:PORT"), 403},
		"two right ones":        {origin("https://colab.research.google.com", "https://colab.research.google.com"), 403},
		"right, then foreign":   {origin("https://colab.research.google.com", "https://evil.example"), 403},
		"a list":                {origin("https://colab.research.google.com, https://evil.example"), 403},
	},
	"host": {
		"none":                {host(), 400},
		"foreign with port":   {host("evil.example:PORT"), 403},
		"rebound name":        {host("rebind.evil.example:PORT"), 403},
		"other port":          {host("localhost:1"), 403},
		"right, then foreign": {host("localhost:PORT", "evil.example"), 400},
	},
	"token": {
		"none":               {target("/"), 401},
		"empty":              {target("/?access_token="), 403},
		"wrong":              {target("/?access_token=AAAAAAAAAAAAAAAAAAAAAA"), 403},
		"one character more": {target("/?access_token=TOKENA"), 403},
		"doubled":            {target("/?access_token=TOKEN&access_token=TOKEN"), 403},
		"wrong, then right":  {target("/?access_token=x&access_token=TOKEN"), 403},
		"only in path":       {target("/TOKEN"), 403},
		"behind a semicolon": {target("/?x;access_token=TOKEN"), 403},
		"only in cookie":     {target("/").with("Cookie", "access_token=TOKEN"), 401},
	},
	"request": {
		"POST":                          {line("POST /?access_token=TOKEN HTTP/1.1"), 405},
		"preflight":                     {line("OPTIONS /?access_token=TOKEN HTTP/1.1").with("Access-Control-Request-Method", "GET"), 405},
		"other path":                    {target("/x?access_token=TOKEN"), 403},
		"a good one behind a bad one":   {behind("Origin: null"), 403},
		"a good one behind a preflight": {behind("Access-Control-Request-Method: GET"), 401},
	},
	"handshake": {
		"no upgrade":             {with("Upgrade"), 426},
		"no key":                 {with("Sec-WebSocket-Key"), 400},
		"two keys":               {with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="), 400},
		"no mcp":                 {with("Sec-WebSocket-Protocol"), 400},
		"protocol in the target": {target("/?access_token=TOKEN&protocol=mcp").with("Sec-WebSocket-Protocol"), 400},
	},
}

// fine are requests that a page, or Google's own client, may send.
var fine = map[string]attempt{
	"colab.research.google.com":   good(),
	"colab.google.com":            origin("https://colab.google.com"),
	"127.0.0.1":                   host("127.0.0.1:PORT"),
	"[::1]":                       host("[::1]:PORT"),
	"percent-encoded":             target("/?access_token=%HEX"),
	"mcp among protocols":         with("Sec-WebSocket-Protocol", "chat, mcp"),
	"Sec-Fetch of a browser":      with("Sec-Fetch-Site", "cross-site").with("Sec-Fetch-Mode", "websocket").with("Sec-Fetch-Dest", "empty"),
	"cookies of localhost, 40 KB": with("Cookie", "a="+strings.Repeat("b", 40_000)),
}

func TestHostileConnections(t *testing.T) {
	d := newDesk(t, standin.Options{Declined: true})
	d.start()
	for group, attempts := range hostile {
		for name, row := range attempts {
			t.Run(group+": "+name, func(t *testing.T) {
				answer := d.try(t, row.attempt)
				defer answer.conn.Close()
				if row.want != answer.StatusCode && (row.want != 4 || answer.StatusCode/100 != 4) {
					t.Errorf("the answer is %d, want %d", answer.StatusCode, row.want)
				}
				if answer.StatusCode != http.StatusSwitchingProtocols {
					answer.checkRefusal(t, d.currentToken())
				}
				answer.conn.Close()
				d.free(t)
			})
		}
	}
	for name, a := range fine {
		t.Run("fine: "+name, func(t *testing.T) {
			answer := d.try(t, a)
			if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Protocol") != "mcp" {
				t.Errorf("the answer is %d, sub-protocol %q", answer.StatusCode, answer.Header.Get("Sec-WebSocket-Protocol"))
			}
			if extensions := answer.Header.Get("Sec-WebSocket-Extensions"); extensions != "" {
				t.Errorf("the answer agrees to %q", extensions)
			}
			d.taken(t)
			answer.conn.Close()
			d.free(t)
		})
	}
}

// start starts the listener, and waits for a tab that never comes.
func (d *desk) start() {
	d.t.Helper()
	if _, _, err := d.begin(""); err != nil {
		d.t.Fatal(err)
	}
}

// free waits until no tab has the slot.
func (d *desk) free(t *testing.T) {
	t.Helper()
	within.Until(t, "the slot is free", func() bool {
		d.Page.mu.Lock()
		defer d.Page.mu.Unlock()
		return d.slot == nil
	})
}

// taken waits until a tab has the slot.
func (d *desk) taken(t *testing.T) {
	t.Helper()
	within.Until(t, "a tab has the slot", func() bool {
		d.Page.mu.Lock()
		defer d.Page.mu.Unlock()
		return d.slot != nil
	})
}

// reply is the answer to an attempt.
type reply struct {
	*http.Response
	conn net.Conn
	in   *bufio.Reader
}

// try sends an attempt, by turns over IPv4 and IPv6.
func (d *desk) try(t *testing.T, a attempt) *reply {
	t.Helper()
	address := "127.0.0.1"
	if d.turns++; d.turns%2 == 0 && hasIPv6() {
		address = "::1"
	}
	port := strconv.Itoa(d.State().Port)
	conn, err := net.Dial("tcp", net.JoinHostPort(address, port))
	must(t, err)
	must(t, conn.SetDeadline(time.Now().Add(within.Limit)))
	token := d.currentToken()
	var hex []string
	for _, b := range []byte(token) {
		hex = append(hex, fmt.Sprintf("%02x", b))
	}
	text := a.line + "\r\n" + strings.Join(append(a.headers, "", ""), "\r\n") + a.body
	for old, fresh := range map[string]string{
		"lower(TOKEN)": strings.ToLower(token), "%25HEX": "%25" + strings.Join(hex, "%25"), "%HEX": "%" + strings.Join(hex, "%"),
	} {
		text = strings.ReplaceAll(text, old, fresh)
	}
	text = strings.NewReplacer("TOKEN", token, "PORT", port).Replace(text)
	_, _ = io.WriteString(conn, text) // the relay may have closed the connection in the middle of it
	r := &reply{conn: conn, in: bufio.NewReader(conn)}
	method, _, _ := strings.Cut(a.line, " ")
	if r.Response, err = http.ReadResponse(r.in, &http.Request{Method: method}); err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return r
}

// checkRefusal checks that an answer tells nothing, lets no page read it, and is the only one.
func (r *reply) checkRefusal(t *testing.T, token string) {
	t.Helper()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		t.Errorf("reading the answer: %v", err)
	}
	if strings.Contains(string(text), token) {
		t.Errorf("the answer names the token: %q", text)
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Access-Control-") || strings.Contains(strings.Join(values, ""), token) {
			t.Errorf("the answer has the header %s: %q", name, values)
		}
	}
	if rest, _ := io.ReadAll(io.LimitReader(r.in, 1<<10)); len(rest) > 0 {
		t.Errorf("after the answer came %q", rest)
	}
}
