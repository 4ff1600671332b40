package page

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// The opcodes of RFC 6455.
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xa
	fin      = 0x80
)

// peer is a tab that writes its frames itself.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   io.Reader
}

// peer connects as Colab's page does, up to the end of the handshake over HTTP.
func (d *desk) peer(t *testing.T) *peer {
	t.Helper()
	answer := d.try(t, good())
	if answer.StatusCode != 101 {
		t.Fatalf("the answer is %d", answer.StatusCode)
	}
	t.Cleanup(func() { _ = answer.conn.Close() })
	return &peer{t: t, conn: answer.conn, in: answer.in}
}

// ready connects a peer and answers the relay's handshake over MCP.
func (d *desk) ready(t *testing.T) *peer {
	t.Helper()
	p := d.peer(t)
	p.text(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.shakeHands()
	within.Until(t, "the tab is connected", func() bool { return d.State().Connected })
	return p
}

// shakeHands answers initialize.
func (p *peer) shakeHands() {
	p.t.Helper()
	hello := p.request("initialize")
	p.reply(hello, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"ColabMCP","version":"1.0.0"}}`)
	p.request("notifications/initialized")
}

// rpc is a message of the relay.
type rpc struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments map[string]any
	}
	Result json.RawMessage
	Error  *rpcError
}

// request reads the next message, which must have a method.
func (p *peer) request(method string) rpc {
	p.t.Helper()
	m := p.message()
	if m.Method != method {
		p.t.Fatalf("the relay sent %+v, want %q", m, method)
	}
	return m
}

// message reads the next message of the relay.
func (p *peer) message() rpc {
	p.t.Helper()
	opcode, data := p.frame()
	if opcode != opText {
		p.t.Fatalf("the relay sent the opcode %d with %q", opcode, data)
	}
	if strings.Contains(string(data), "null") {
		p.t.Errorf("the relay sent a null field: %s", data)
	}
	var m rpc
	must(p.t, json.Unmarshal(data, &m))
	return m
}

func (p *peer) reply(m rpc, result string) {
	p.t.Helper()
	p.text(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// answerText answers a call of a tool with a text.
func (p *peer) answerText(m rpc, text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	must(p.t, err)
	p.reply(m, `{"content":[{"type":"text","text":`+string(quoted)+`}]}`)
}

func (p *peer) text(s string) {
	p.t.Helper()
	p.write(frame(opText|fin, []byte(s)))
}

// write sends bytes. The relay may have closed the connection, which a later read notices.
func (p *peer) write(b []byte) { _, _ = p.conn.Write(b) }

// frame is a masked frame of a client.
func frame(first byte, payload []byte) []byte {
	head := []byte{first}
	switch n := len(payload); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	if len(payload) > 1<<16 { // a mask of zeros, which takes no time
		return slices.Concat(head, make([]byte, 4), payload)
	}
	mask := []byte{1, 2, 3, 4}
	masked := slices.Clone(payload)
	for i := range masked {
		masked[i] ^= mask[i%4]
	}
	return slices.Concat(head, mask, masked)
}

// frame reads a frame of the relay; pings are answered.
func (p *peer) frame() (opcode byte, payload []byte) {
	p.t.Helper()
	for {
		opcode, payload, err := p.readFrame()
		switch {
		case err != nil:
			p.t.Fatalf("reading a frame of the relay: %v", err)
		case opcode == opPing:
			p.write(frame(opPong|fin, payload))
		default:
			return opcode, payload
		}
	}
}

func (p *peer) readFrame() (opcode byte, payload []byte, err error) {
	head := make([]byte, 2, 10)
	if _, err := io.ReadFull(p.in, head); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	for marker, length := range map[uint64]int{126: 2, 127: 8} {
		if size != marker {
			continue
		}
		wide := make([]byte, 8)
		if _, err := io.ReadFull(p.in, wide[8-length:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(wide)
		break
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(p.in, payload)
	return head[0] & 0xf, payload, err
}

// closed reads until the relay closes the connection, and returns the code of its close
// frame, or 0 if there is none.
func (p *peer) closed() int {
	p.t.Helper()
	for {
		opcode, payload, err := p.readFrame()
		if err != nil {
			return 0
		}
		if opcode == opClose {
			p.write(frame(opClose|fin, payload[:2]))
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

// newQuietDesk returns a Page that waits for a peer.
func newQuietDesk(t *testing.T, change ...func(*Page)) *desk {
	t.Helper()
	d := newDesk(t, standin.Options{Declined: true}, change...)
	d.start()
	return d
}

// short makes the times that end a connection short.
func short(p *Page) {
	p.timing.ping, p.timing.pong = 20*time.Millisecond, 200*time.Millisecond
	p.timing.closing = 100 * time.Millisecond
}

// State is what a Page does at the moment.
type State struct {
	Port      int
	Connected bool
	Waiting   bool // a notebook was opened and its tab has not connected yet
}

// State returns what the Page does at the moment.
func (p *Page) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{p.port, p.tab != nil, p.wait != nil}
}
