package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
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

// open connects a Tab to a peer.
func open(t *testing.T, o Options) (*Tab, *peer) {
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
	tab, err := Dial(t.Context(), "https://colab.research.google.com/notebooks/empty.ipynb?p="+port+"#mcpProxyToken=T0k-en_&mcpProxyPort="+port, o)
	if err != nil {
		t.Fatal(err)
	}
	p := <-accepted
	t.Cleanup(func() { _ = p.conn.CloseNow(); tab.Close() }) // in this order: a closing frame waits for its answer
	if first := p.read(); first["method"] != "notifications/tools/list_changed" {
		t.Fatalf("the first message is %v", first)
	}
	return tab, p
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

func (p *peer) send(method string, params any) int {
	p.t.Helper()
	p.next++
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.next, "method": method, "params": params})
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, raw); err != nil {
		p.t.Fatal(err)
	}
	return p.next
}

func (p *peer) ask(method string, params any) map[string]any {
	p.t.Helper()
	p.send(method, params)
	return p.read()
}

// call returns the text of a tool's answer and whether it is an error.
func (p *peer) call(tool string, arguments map[string]any) (string, bool) {
	p.t.Helper()
	p.send("tools/call", map[string]any{"name": tool, "arguments": arguments})
	return text(p.read())
}

func text(answer map[string]any) (string, bool) {
	result := answer["result"].(map[string]any)
	failed, _ := result["isError"].(bool)
	return result["content"].([]any)[0].(map[string]any)["text"].(string), failed
}

func TestTabDialsAsThePageDoes(t *testing.T) {
	_, p := open(t, Options{})
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

func TestTabEditsItsNotebook(t *testing.T) {
	tab, p := open(t, Options{Notebook: NewNotebook(), Execute: Fake(func(_ context.Context, code string) []map[string]any {
		return []map[string]any{Stream("ran " + code)}
	})})
	added, _ := p.call("add_code_cell", map[string]any{"cellIndex": 0, "language": "python", "code": "a = 1\nb = 2"})
	var cell struct{ NewCellID string }
	if err := json.Unmarshal([]byte(added), &cell); err != nil || cell.NewCellID == "" {
		t.Fatalf("add_code_cell answers %s", added)
	}
	id := cell.NewCellID
	if got, _ := p.call("get_cells", nil); !strings.Contains(got, `"source":["a = 1\n","b = 2"]`) || !strings.Contains(got, `"execution_count":null`) {
		t.Errorf("get_cells answers %s", got)
	}
	p.call("add_text_cell", map[string]any{"cellIndex": 0, "content": "# Title"})
	p.call("update_cell", map[string]any{"cellId": id, "content": "c = 3"})
	p.call("move_cell", map[string]any{"cellId": id, "cellIndex": 0})
	if got, failed := p.call("run_code_cell", map[string]any{"cellId": id}); failed || !strings.Contains(got, "ran c = 3") {
		t.Errorf("run_code_cell answers %s", got)
	}
	if got, _ := p.call("get_cells", map[string]any{"cellIndexStart": 0, "cellIndexEnd": 0, "includeOutputs": true}); !strings.Contains(got, `"execution_count":1`) || !strings.Contains(got, "ran c = 3") || strings.Contains(got, "Title") {
		t.Errorf("get_cells answers %s", got)
	}
	for tool, arguments := range map[string]map[string]any{
		"add_code_cell": {"cellIndex": 0, "code": "no language"}, "move_cell": {"cellId": id, "toIndex": 1},
		"delete_cell": {"cellId": "absent"}, "add_text_cell": {"cellIndex": 9, "content": "beyond"}, "no_such_tool": {},
	} {
		if got, failed := p.call(tool, arguments); !failed {
			t.Errorf("%s(%v) answers %s", tool, arguments, got)
		}
	}
	p.call("delete_cell", map[string]any{"cellId": id})
	if cells := tab.Notebook.Cells(); len(cells) != 1 || cells[0].Type != "markdown" {
		t.Errorf("the notebook has %v", cells)
	}
	for _, seen := range []string{"opened: https://", `received: {"id":1`, `sent: {"jsonrpc"`, "saved: [{", "ran c = 3"} {
		if !strings.Contains(tab.Everything(), seen) {
			t.Errorf("%q is not in what the tab saw", seen)
		}
	}
}

func TestKernelRunsCells(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	k, err := StartKernel(t.Context(), KernelOptions{Python: stacks.Old(t).Python, Dir: dir, Env: []string{"STANDIN=here"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	outputs, count := k.Execute(t.Context(), "import os, sys\nprint(os.getcwd())\nprint(os.environ['STANDIN'])\nprint('e', file=sys.stderr)\nx = 6\nx * 7")
	got, _ := json.Marshal(outputs)
	for _, want := range []string{dir + `\n","here\n"`, `"name":"stderr"`, `"text/plain":"42"`, `"output_type":"execute_result"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the outputs %s have no %s", got, want)
		}
	}
	if count != 1 {
		t.Errorf("count is %d, want 1", count)
	}
	if outputs, _ := k.Execute(t.Context(), "print('a')\nfrom IPython.display import clear_output\nclear_output(wait=True)\n1/0"); len(outputs) != 1 || outputs[0]["ename"] != "ZeroDivisionError" {
		t.Errorf("the outputs are %v", outputs)
	}
	ended := make(chan []map[string]any, 1)
	go func() {
		outputs, _ := k.Execute(t.Context(), "open('started', 'w').close()\nwhile True: pass")
		ended <- outputs
	}()
	within.Until(t, "the cell runs", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
	if err := k.Interrupt(); err != nil {
		t.Fatal(err)
	}
	if outputs := within.Receive(t, "the end of the cell", ended); len(outputs) != 1 || outputs[0]["ename"] != "KeyboardInterrupt" {
		t.Errorf("the outputs are %v", outputs)
	}
}
