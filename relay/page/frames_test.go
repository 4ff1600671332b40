package page

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/within"
)

// Each misbehaving frame ends the connection with its code, a call that waits fails, and the
// slot is free for the next tab.
func TestBadFramesEndTheConnection(t *testing.T) {
	for name, test := range map[string]struct {
		send []byte
		want int
	}{
		"binary":                          {frame(opBinary|fin, []byte(`{"jsonrpc":"2.0","method":"x"}`)), 1003},
		"no JSON":                         {frame(opText|fin, []byte("hello")), 1007},
		"a list":                          {frame(opText|fin, []byte(`[{"jsonrpc":"2.0","method":"x"}]`)), 1007},
		"old version":                     {frame(opText|fin, []byte(`{"jsonrpc":"1.0","method":"x"}`)), 1007},
		"not UTF-8":                       {frame(opText|fin, []byte("{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}")), 1007},
		"nested too deep":                 {frame(opText|fin, []byte(strings.Repeat("[", maxDepth+1))), 1009},
		"too many values":                 {frame(opText|fin, []byte("["+strings.Repeat("1,", maxValues)+"1]")), 1009},
		"one byte too many":               {frame(opText|fin, bytes.Repeat([]byte(" "), smallLimit+1)), 1009},
		"a length of 2^62":                {append([]byte{opText | fin, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte("x"), smallLimit+1)...), 1009},
		"close":                           {frame(opClose|fin, []byte{3, 0xe8}), 1000},
		"nothing, and the end of the tab": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuietDesk(t, func(p *Page) { p.timing.closing, p.limit = within.Limit, smallLimit })
			p := d.ready(t)
			tab, _ := d.Tab()
			failed := make(chan error, 1)
			go func() {
				_, err := tab.Run(t.Context(), "c1")
				failed <- err
			}()
			p.request("tools/call")
			if test.send == nil {
				p.conn.Close()
			} else {
				go p.write(test.send) // a large frame is still on its way when the relay closes
			}
			if code := p.closed(); code != test.want {
				t.Errorf("closed with %d, want %d", code, test.want)
			}
			if err := <-failed; !errors.Is(err, ErrTabLost) {
				t.Errorf("the call ended with %v, want ErrTabLost", err)
			}
			d.free(t)
			if d.State().Connected {
				t.Error("the tab still counts as connected")
			}
		})
	}
}

// smallLimit is a limit of a message that tests can go beyond quickly.
const smallLimit = 2 << 20

// Odd but correct frames are accepted, and what nobody asked for is ignored: the call that
// waits gets its own answer.
func TestUnaskedMessagesAreIgnored(t *testing.T) {
	d := newQuietDesk(t)
	p := d.ready(t)
	tab, _ := d.Tab()
	type end struct {
		result Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := tab.Run(t.Context(), "c1")
		ended <- end{r, err}
	}()
	call := p.request("tools/call")
	wrong := `{"content":[{"type":"text","text":"{\"outputs\":[\"wrong\"]}"}]}`
	for _, id := range []string{"0", "-1", "1", "999999999999", "9223372036854775808", `"` + string(call.ID) + `"`, string(call.ID) + ".0", string(call.ID) + "e0", `{}`, `[` + string(call.ID) + `]`, `true`} {
		p.text(`{"jsonrpc":"2.0","id":` + id + `,"result":` + wrong + `}`)
		p.text(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":1,"message":"wrong"}}`)
	}
	p.text(`{"jsonrpc":"2.0","method":"notifications/unheard/of","params":[1,{"a":null}]}`)
	p.text(`{"jsonrpc":"2.0","method":"ping","id":null}`)
	p.text(`{"jsonrpc":"2.0","method":"ping","id":{"a":1}}`)
	p.text(`{"jsonrpc":"2.0","method":"ping","id":"` + strings.Repeat("x", maxID) + `"}`)
	p.write(frame(opPong|fin, []byte("nobody asked")))
	for _, part := range [][]byte{frame(opText, []byte(`{"jsonrpc":`)), frame(opPing|fin, []byte("x")), frame(opContinuation, nil), frame(opContinuation|fin, []byte(`"2.0","method":"x"}`))} {
		p.write(part)
	}
	if opcode, payload := p.rawFrame(); opcode != opPong || string(payload) != "x" {
		t.Errorf("a ping between fragments was answered with %d %q", opcode, payload)
	}
	p.text(`{"jsonrpc":"2.0","method":"ping","id":99}`)
	if m := p.message(); string(m.ID) != "99" { // answers are sent in order
		t.Errorf("the relay answered the request %s", m.ID)
	}
	p.answerText(call, `{"outputs":["right"]}`)
	if got := <-ended; got.err != nil || string(got.result.Outputs) != `["right"]` {
		t.Errorf("the run ended with %s, %v", got.result.Outputs, got.err)
	}
}

// rawFrame reads a frame and answers nothing.
func (p *peer) rawFrame() (byte, []byte) {
	p.t.Helper()
	opcode, payload, err := p.readFrame()
	if err != nil {
		p.t.Fatal(err)
	}
	return opcode, payload
}

func TestSilentTabFreesTheSlot(t *testing.T) {
	d := newQuietDesk(t, short)
	p := d.ready(t) // reads nothing from here on, so no ping is answered
	tab, _ := d.Tab()
	_, err := tab.Run(t.Context(), "c1")
	if !errors.Is(err, ErrTabLost) {
		t.Errorf("the call ended with %v", err)
	}
	d.free(t)
	_ = p
}

func TestHandshakeThatFails(t *testing.T) {
	hello := func(version string) string {
		return `{"protocolVersion":"` + version + `","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
	}
	for name, test := range map[string]func(p *peer){
		"no answer":       func(*peer) {},
		"unknown version": func(p *peer) { p.reply(p.request("initialize"), hello("1.0")) },
		"tools that are no list": func(p *peer) {
			p.reply(p.request("initialize"), hello("2025-06-18"))
			p.request("notifications/initialized")
			p.reply(p.request("tools/list"), `{"tools":{}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuietDesk(t, func(p *Page) {
				p.timing.closing = within.Limit
				if name == "no answer" {
					p.timing.handshake = 300 * time.Millisecond
				}
			})
			before := d.currentToken()
			p := d.peer(t)
			test(p)
			if code := p.closed(); code != 1002 {
				t.Errorf("closed with %d, want 1002", code)
			}
			d.free(t)
			if d.State().Connected || d.currentToken() != before {
				t.Error("the tab counts as connected, or its page can't try again")
			}
		})
	}
}
