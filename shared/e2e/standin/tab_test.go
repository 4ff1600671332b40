package standin

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the relay's end of a connection.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	asks *http.Request
	next int
}

// open returns the peer of a new Tab.
func open(t *testing.T) *peer {
	t.Helper()
	accepted := make(chan *peer, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}, InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- &peer{t: t, conn: conn, asks: r}
	}))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	tab, err := Dial(t.Context(), "https://colab.research.google.com/notebooks/empty.ipynb?p="+port+"#mcpProxyToken=T0k-en_&mcpProxyPort="+port, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := <-accepted
	t.Cleanup(func() { _ = p.conn.CloseNow(); tab.Close() }) // in this order: a closing frame waits for its answer
	if first := p.read(); first["method"] != "notifications/tools/list_changed" {
		t.Fatalf("the first message is %v", first)
	}
	return p
}

func (p *peer) read() map[string]any {
	p.t.Helper()
	kind, raw, err := p.conn.Read(within.Context(p.t))
	if err != nil || kind != websocket.MessageText {
		p.t.Fatalf("frame of type %v: %v", kind, err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *peer) ask(method string, params any) map[string]any {
	p.t.Helper()
	p.next++
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params})
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, raw); err != nil {
		p.t.Fatal(err)
	}
	return p.read()
}

func TestTabDialsAsThePageDoes(t *testing.T) {
	p := open(t)
	if got := p.asks.Header.Get("Origin"); got != "https://colab.research.google.com" {
		t.Errorf("Origin is %q", got)
	}
	if got := p.asks.URL.RequestURI(); got != "/?access_token=T0k-en_" {
		t.Errorf("it asks for %q", got)
	}
	if host := p.asks.Host; !strings.HasPrefix(host, "localhost:") {
		t.Errorf("Host is %q", host)
	}
	answer := p.ask("initialize", map[string]any{"protocolVersion": "2025-06-18"})
	if got := fmt.Sprint(answer["result"]); !strings.Contains(got, "name:ColabMCP") || !strings.Contains(got, "protocolVersion:2025-06-18") {
		t.Errorf("initialize answers %s", got)
	}
	if listed := p.ask("tools/list", nil)["result"].(map[string]any)["tools"].([]any); len(listed) != 7 {
		t.Errorf("it has %d tools, want 7", len(listed))
	}
	if answer := p.ask("resources/list", nil); answer["error"] == nil {
		t.Errorf("an unknown method answers %v", answer)
	}
}
