package page

import (
	"net"
	"strconv"
	"testing"
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
