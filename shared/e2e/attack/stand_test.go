// Package attack sends hostile requests to the real executor, byte by byte, while an honest
// relay uses it. It has only tests and must not be imported.
//
// The attackers are strangers, who have no key; the operator of the tunnel, who has captured
// requests of the owner; and holders of the key and code in the kernel, who must not fill the
// executor's memory. Start reading at the tables in strangers_test.go and captured_test.go.
package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
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
	must(t, err)
	must(t, conn.SetDeadline(time.Now().Add(deadline)))
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

// stand is a real executor under attack, and an honest relay that uses it meanwhile.
type stand struct {
	t       *testing.T
	vm      *harness.Executor
	address string
	key     auth.Secret
	relay   *client.Client
	http    *http.Transport // of key holders
	name    string          // Executor-Instance; see instance
	honest  int             // runs of the relay since the attacks began
	before  harness.Process
}

// newStand borrows an executor and connects the honest relay.
func newStand(t *testing.T) *stand {
	t.Helper()
	key, err := auth.NewSecret(secret)
	must(t, err)
	s := &stand{t: t, vm: pool.Borrow(t, stacks.Old(t).Python), key: key}
	s.address = strings.TrimPrefix(s.vm.Ready.LocalURL, "http://")
	s.relay, err = client.New(client.Config{BaseURL: s.vm.Ready.LocalURL, Secret: key})
	must(t, err)
	s.http = &http.Transport{DisableCompression: true}
	s.run("ran = []; honest = 0")
	s.before = s.usage()
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs code, which must succeed, and returns its result as text.
func (s *stand) run(code string) string {
	s.t.Helper()
	result, err := s.submit(within.Context(s.t), code)
	must(s.t, err)
	return result
}

func (s *stand) submit(ctx context.Context, code string) (string, error) {
	x, err := s.relay.Submit(ctx, contract.Submit{Code: code, WaitSeconds: 40})
	if err != nil {
		return "", err
	}
	if x.Status != contract.StatusSucceeded {
		return "", fmt.Errorf("%q ended as %s: %s", code, x.Status, x.Reason)
	}
	for _, e := range x.Events {
		if e.Type == contract.EventExecuteResult {
			var text string
			return text, json.Unmarshal(e.Data["text/plain"], &text)
		}
	}
	return "", nil
}

// workHonestly is a run of the honest relay, which must succeed whatever the attackers do.
func (s *stand) workHonestly() {
	s.t.Helper()
	s.run("honest += 1")
	s.honest++
}

// usage is what the executor has of the system. A connection is a socket and a goroutine.
func (s *stand) usage() harness.Process {
	s.t.Helper()
	p, err := harness.ProcessOf(s.vm.PID())
	must(s.t, err)
	return p
}

// Bounds of what attacks cost. Of sockets, nothing may be left.
const (
	mostThreadsLeft = 24  // Go keeps threads that waited in system calls
	mostMemory      = 160 // MiB more than before, at the peak: some bodies of 8 MiB, which Go frees late
)

// end checks that the attacks left nothing. want are the numbers
// of the submits that ran.
func (s *stand) end(want []int) {
	s.t.Helper()
	if honest := s.run("honest"); honest != fmt.Sprint(s.honest) || s.honest == 0 {
		s.t.Errorf("the honest relay ran %d times, the kernel %s", s.honest, honest)
	}
	var ran []int
	must(s.t, json.Unmarshal([]byte(s.run("sorted(ran)")), &ran))
	if fmt.Sprint(ran) != fmt.Sprint(want) {
		s.t.Errorf("submits %v ran, want %v", ran, want)
	}
	s.relay.Close()
	s.http.CloseIdleConnections()
	var after harness.Process
	within.Until(s.t, "the sockets of the attacks are closed", func() bool {
		after = s.usage()
		return after.Sockets <= s.before.Sockets
	})
	if after.Threads > s.before.Threads+mostThreadsLeft {
		s.t.Errorf("%d threads, %d before", after.Threads, s.before.Threads)
	}
	if grown := after.Memory.Peak - s.before.Memory.Now; grown > mostMemory {
		s.t.Errorf("memory grew by %.0f MiB at the peak", grown)
	}
	s.t.Logf("sockets %d to %d, threads %d to %d, memory %.0f to %.0f MiB (peak %.0f)", s.before.Sockets, after.Sockets,
		s.before.Threads, after.Threads, s.before.Memory.Now, after.Memory.Now, after.Memory.Peak)
}
