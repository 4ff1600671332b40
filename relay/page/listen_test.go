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
)

// Programs that only open connections can't keep Colab's page out.
func TestManyStrangers(t *testing.T) {
	d := newQuietDesk(t)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range 3 * maxWaiting {
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
