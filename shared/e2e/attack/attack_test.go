// Package attack sends hostile requests to the real executor, byte by byte, while an honest
// relay uses it. It has only tests and must not be imported.
//
// The attackers are strangers, who have no key; the operator of the tunnel, who has captured
// requests of the owner; and holders of the key, who must not harm the executor's memory or
// other relays by mistake or on purpose. Start reading at the tables in lines_test.go,
// signed_test.go and sealed_test.go, then at stand_test.go.
package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/within"
)

// secret is a valid secret that protects nothing.
const secret = "the secret of the attacks' tests, 32 bytes or more"

var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// attack is what one connection sends. After it the sender closes its half.
type attack struct {
	name string
	raw  string
	// want matches the statuses of all answers, separated by spaces. "-" is no answer.
	want string
}

// answered is what the executor sent back until it closed the connection.
type answered struct {
	statuses string
	bodies   []string
	headers  []http.Header
	bytes    int
}

// deadline is when a connection that the executor should have closed counts as kept. It is
// longer than each of the executor's own limits for strangers.
const deadline = within.Limit

// dial connects from an address that few other attacks have: the executor allows each address
// 60 unsigned requests a minute.
func dial(t testing.TB, address string, n int) *net.TCPConn {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 2, byte(n/20>>8), byte(n/20))}}
	conn, err := from.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// deliver sends raw over a connection of its own, ends its half, and reads what comes back
// until the executor closes the connection.
func deliver(t testing.TB, address string, n int, raw string) answered {
	t.Helper()
	return exchange(t, address, n, raw, (*net.TCPConn).CloseWrite)
}

// ask is deliver without ending its half. The executor takes such an end for a caller who has
// gone away, which ends the wait for a run's result.
func ask(t testing.TB, address string, n int, raw string) answered {
	t.Helper()
	return exchange(t, address, n, raw, func(*net.TCPConn) error { return nil })
}

func exchange(t testing.TB, address string, n int, raw string, end func(*net.TCPConn) error) answered {
	t.Helper()
	conn := dial(t, address, n)
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, raw) // fails if the executor closes the connection first
		_ = end(conn)
	}()
	return read(t, conn)
}

// read reads answers until the executor closes the connection.
func read(t testing.TB, conn net.Conn) (a answered) {
	t.Helper()
	var statuses []string
	counted := &counter{Reader: conn}
	r := bufio.NewReader(counted)
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Error("the executor keeps the connection")
			}
			break
		}
		body, _ := io.ReadAll(res.Body) // an answer that was cut is read as far as it came
		statuses = append(statuses, fmt.Sprint(res.StatusCode))
		a.bodies, a.headers = append(a.bodies, string(body)), append(a.headers, res.Header)
	}
	a.bytes = counted.n
	if a.statuses = strings.Join(statuses, " "); a.statuses == "" {
		a.statuses = "-"
	}
	return a
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// mark is in each hostile request, so that an answer that repeats any of it is found.
const mark = "mArK-0f-an-aTTack"

var requestID = regexp.MustCompile(`"request_id":"[^"]*"`)

// wantNothingLearned fails if answers to a stranger tell more than that it is one: they are
// unsigned, name no executor, do not repeat the request, and are short. health is allowed.
func wantNothingLearned(t *testing.T, name string, a answered) {
	t.Helper()
	for i, h := range a.headers {
		body := requestID.ReplaceAllString(a.bodies[i], "")
		for _, header := range []string{"Signature", "Signature-Input", "Executor-Instance", "Server", "Allow", "Upgrade"} {
			if h.Get(header) != "" {
				t.Errorf("%s: the answer has %s: %q", name, header, h.Get(header))
			}
		}
		if len(body) > 512 || strings.Contains(body+fmt.Sprint(h), mark) {
			t.Errorf("%s: the answer is %v %q", name, h, body)
		}
	}
	if a.bytes > 2048 {
		t.Errorf("%s: %d bytes were answered", name, a.bytes)
	}
}
