package page

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/tier"
)

// Programs that only open connections can't keep Colab's page out.
func TestThousandsOfStrangers(t *testing.T) {
	tier.Long(t)
	d := newQuietDesk(t)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range 3000 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(d.State().Port))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
		if i%3 == 0 {
			_, _ = conn.Write([]byte("GET /?access_token=")) // never ends its request
		}
	}
	crowd := &d.server.crowd
	crowd.mu.Lock()
	n := len(crowd.conns)
	crowd.mu.Unlock()
	if n > maxWaiting {
		t.Errorf("%d connections wait, over %d", n, maxWaiting)
	}
	d.ready(t)
}

// A tab whose token changed between the check and the connection does not get the slot.
func TestTokenThatChangedMeanwhile(t *testing.T) {
	p := New(Config{})
	old := p.currentToken()
	p.token = newToken() // as the end of a server does
	if p.take(nil, nil, old) != nil || p.slot != nil {
		t.Error("a tab with an old token has the slot")
	}
}

func TestCloseEndsEverything(t *testing.T) {
	d := newDesk(t, standin.Options{})
	tab := d.connected()
	d.Close()
	select {
	case <-tab.Done():
	default:
		t.Error("the tab is not lost")
	}
	if state := d.State(); state.Listening || state.Connected || state.Waiting || state.Port != 0 {
		t.Errorf("the state is %+v", state)
	}
	if _, err := d.connect(Request{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Connect after Close: %v", err)
	}
	d.Close()
}

func TestCloseEndsTheWaiting(t *testing.T) {
	d := newQuietDesk(t)
	failed := make(chan error, 1)
	go func() {
		_, err := d.connect(Request{})
		failed <- err
	}()
	d.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestCloseOfANewPage(t *testing.T) { New(Config{}).Close() }

func TestPortOfItsOwn(t *testing.T) {
	free, err := listen(0)
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(free[0])
	taken := New(Config{Port: port})
	defer taken.Close()
	if _, err := taken.Connect(t.Context(), Request{}, nil); err == nil || !strings.Contains(err.Error(), "--page-port") {
		t.Errorf("a port that is taken: %v", err)
	}
	if hasIPv6() {
		free[0].Close() // [::1] is still another program's
		if _, err := taken.Connect(t.Context(), Request{}, nil); err == nil || !strings.Contains(err.Error(), "--page-port") {
			t.Errorf("a port that is taken on [::1]: %v", err)
		}
	}
	for _, l := range free {
		l.Close()
	}
	d := newDesk(t, standin.Options{}, func(p *Page) { p.cfg.Port, p.port = port, port })
	d.connected()
	if got := d.State().Port; got != port {
		t.Errorf("listens on %d, want %d", got, port)
	}
}

// After the page was closed from outside, a further Connect listens again, on the same port.
func TestPortIsKept(t *testing.T) {
	d := newDesk(t, standin.Options{})
	d.connected()
	port := d.State().Port
	d.stop(d.server)
	d.connected()
	if got := d.State().Port; got != port {
		t.Errorf("listens on %d, want %d", got, port)
	}
	d.stop(d.server)
	squatter, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	d.connected() // on another one
}

func TestLogHasNoToken(t *testing.T) {
	var log bytes.Buffer
	d := newDesk(t, standin.Options{}, func(p *Page) {
		p.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	d.start()
	d.try(t, origin("null")).conn.Close()
	d.connected()
	token := d.currentToken()
	d.tab().Drop()
	d.free(t)
	if text := log.String(); !strings.Contains(text, "connected") || strings.Contains(text, token) || strings.Contains(text, "colab.research.google.com") {
		t.Errorf("the log is %s", text)
	}
}
