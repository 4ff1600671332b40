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
	if _, err := d.begin(""); err != nil {
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
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(within.Limit)); err != nil {
		t.Fatal(err)
	}
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
