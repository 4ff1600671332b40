package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/tier"
)

// Each misbehaving frame ends the connection with its code, a call that waits fails, and the
// slot is free for the next tab.
func TestBadFramesEndTheConnection(t *testing.T) {
	tier.Long(t)
	long := strings.Repeat("a", 130)
	for name, test := range map[string]struct {
		send []byte
		want int
	}{
		"binary":                          {frame(opBinary|fin, []byte(`{"jsonrpc":"2.0","method":"x"}`)), 1003},
		"empty binary":                    {frame(opBinary|fin, nil), 1003},
		"empty text":                      {frame(opText|fin, nil), 1007},
		"no JSON":                         {frame(opText|fin, []byte("hello")), 1007},
		"two values":                      {frame(opText|fin, []byte(`{"jsonrpc":"2.0","method":"x"}{}`)), 1007},
		"a list":                          {frame(opText|fin, []byte(`[{"jsonrpc":"2.0","method":"x"}]`)), 1007},
		"null":                            {frame(opText|fin, []byte(`null`)), 1007},
		"a number":                        {frame(opText|fin, []byte(`1`)), 1007},
		"no version":                      {frame(opText|fin, []byte(`{"method":"x"}`)), 1007},
		"old version":                     {frame(opText|fin, []byte(`{"jsonrpc":"1.0","method":"x"}`)), 1007},
		"neither request nor answer":      {frame(opText|fin, []byte(`{"jsonrpc":"2.0","id":1}`)), 1007},
		"answer without id":               {frame(opText|fin, []byte(`{"jsonrpc":"2.0","result":{}}`)), 1007},
		"method that is no text":          {frame(opText|fin, []byte(`{"jsonrpc":"2.0","method":{}}`)), 1007},
		"error that is no object":         {frame(opText|fin, []byte(`{"jsonrpc":"2.0","id":1,"error":"x"}`)), 1007},
		"not UTF-8":                       {frame(opText|fin, []byte("{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}")), 1007},
		"cut UTF-8":                       {frame(opText|fin, []byte("\"\xe2\x82")), 1007},
		"NaN":                             {frame(opText|fin, []byte(`{"jsonrpc":"2.0","method":"x","params":NaN}`)), 1007},
		"nested too deep":                 {frame(opText|fin, []byte(strings.Repeat("[", maxDepth+1))), 1009},
		"a million lists":                 {frame(opText|fin, []byte(strings.Repeat("[", 1_000_000))), 1009},
		"too many values":                 {frame(opText|fin, []byte("["+strings.Repeat("1,", maxValues)+"1]")), 1009},
		"one byte too many":               {frame(opText|fin, bytes.Repeat([]byte(" "), smallLimit+1)), 1009},
		"too many bytes in fragments":     {fragments(65, smallLimit/64), 1009},
		"a length of 2^62":                {append([]byte{opText | fin, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte("x"), smallLimit+1)...), 1009},
		"a negative length":               {[]byte{opText | fin, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, 1002},
		"unmasked":                        {append([]byte{opText | fin, 2}, "{}"...), 1002},
		"reserved bit 1, compression":     {frame(opText|fin|0x40, []byte("x")), 1002},
		"reserved bit 2":                  {frame(opText|fin|0x20, []byte("x")), 1002},
		"reserved bit 3":                  {frame(opText|fin|0x10, []byte("x")), 1002},
		"reserved opcode":                 {frame(0x3|fin, nil), 1002},
		"reserved control opcode":         {frame(0xb|fin, nil), 1002},
		"continuation of nothing":         {frame(opContinuation|fin, []byte("x")), 1002},
		"a message within another":        {append(frame(opText, []byte("{")), frame(opText|fin, []byte("}"))...), 1002},
		"long ping":                       {frame(opPing|fin, []byte(long)), 1002},
		"fragmented ping":                 {frame(opPing, []byte("x")), 1002},
		"long pong":                       {frame(opPong|fin, []byte(long)), 1002},
		"close with one byte":             {frame(opClose|fin, []byte{3}), 1002},
		"close with a reserved code":      {frame(opClose|fin, []byte{0x3, 0xec}), 1002},
		"close with a code beyond":        {frame(opClose|fin, []byte{0xff, 0xff}), 1002},
		"close with a long reason":        {frame(opClose|fin, append([]byte{3, 0xe8}, long...)), 1002},
		"close":                           {frame(opClose|fin, []byte{3, 0xe8}), 1000},
		"close, going away":               {frame(opClose|fin, []byte{3, 0xe9}), 1001},
		"close with a code of its own":    {frame(opClose|fin, []byte{0x0f, 0xa0}), 4000},
		"another request instead":         {[]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 1002},
		"nothing, and the end of the tab": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuietDesk(t, func(p *Page) { p.timing.closing, p.limit = 10*time.Second, smallLimit })
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

// The real limit holds too.
func TestMessageOf65MiBEndsTheConnection(t *testing.T) {
	tier.Long(t)
	d := newQuietDesk(t, func(p *Page) { p.timing.closing = 30 * time.Second })
	p := d.ready(t)
	go func() {
		p.write([]byte{opText | fin, 0xff, 0, 0, 0, 0, 65 >> 4, 65 << 4 & 0xff, 0, 0, 0, 0, 0, 0}) // 65 MiB, and a mask of zeros
		part := bytes.Repeat([]byte("x"), 1<<20)
		for range 65 {
			p.write(part)
		}
	}()
	if code := p.closed(); code != 1009 {
		t.Errorf("closed with %d, want 1009", code)
	}
}

// fragments is a text message in n fragments of a size.
func fragments(n, size int) []byte {
	var all []byte
	payload := bytes.Repeat([]byte(" "), size)
	for i := range n {
		first := byte(opContinuation)
		if i == 0 {
			first = opText
		}
		if i == n-1 {
			first |= fin
		}
		all = append(all, frame(first, payload)...)
	}
	return all
}

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

func TestRequestsOfTheTab(t *testing.T) {
	d := newQuietDesk(t)
	p := d.ready(t)
	for id, id2 := range map[string]string{`7`: `7`, `"a"`: `"a"`} {
		p.text(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if m := p.message(); string(m.ID) != id2 || string(m.Result) != "{}" || m.Error != nil {
			t.Errorf("ping %s was answered with %+v", id, m)
		}
	}
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list", "tools/call", "unheard/of"} {
		p.text(`{"jsonrpc":"2.0","id":8,"method":"` + method + `","params":{}}`)
		if m := p.message(); m.Error == nil || m.Error.Code != -32601 || m.Result != nil {
			t.Errorf("%s was answered with %+v", method, m)
		}
	}
}

// A flood of pings and requests costs the tab as much as the relay: the answers are written
// before more is read, so nothing grows.
func TestFloodsAreAnsweredInOrder(t *testing.T) {
	d := newQuietDesk(t)
	p := d.ready(t)
	const many = 2_000
	go func() {
		for i := range many {
			p.write(frame(opPing|fin, []byte("p")))
			p.write(frame(opText|fin, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)))
			p.write(frame(opText|fin, []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)))
		}
	}()
	pongs, next := 0, 0
	for pongs < many || next < many {
		switch opcode, payload := p.rawFrame(); opcode {
		case opPong:
			pongs++
		case opText:
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, next); string(payload) != want {
				t.Fatalf("got %s, want %s", payload, want)
			}
			next++
		default:
			t.Fatalf("got the opcode %d", opcode)
		}
	}
}

// A tab that does not read is ended after the time for one message, also while it sends.
func TestTabThatDoesNotReadIsEnded(t *testing.T) {
	tier.Long(t)
	d := newQuietDesk(t, func(p *Page) {
		p.timing.write, p.timing.closing = 200*time.Millisecond, 100*time.Millisecond
	})
	p := d.ready(t)
	tab, _ := d.Tab()
	failed := make(chan error, 1)
	go func() {
		_, err := tab.AddText(t.Context(), 0, strings.Repeat("x", maxText))
		failed <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := p.conn.Write(frame(opText|fin, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))); err != nil {
				return
			}
		}
	}()
	if err := <-failed; !errors.Is(err, ErrTabLost) {
		t.Errorf("the call ended with %v", err)
	}
	d.free(t)
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

// A tab that sends a large message slowly is alive, though its answers to pings come late.
func TestSlowMessageIsASignOfLife(t *testing.T) {
	tier.Long(t)
	d := newQuietDesk(t, func(p *Page) { p.timing.ping, p.timing.pong = 20*time.Millisecond, 5*time.Second })
	p := d.ready(t)
	p.write(frame(opText|fin, bytes.Repeat([]byte(" "), 200*heardPart))[:1<<10])
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 100 { // twice as long as a ping may take
		<-tick.C
		p.write(bytes.Repeat([]byte(" "), heardPart))
	}
	if !d.State().Connected {
		t.Error("the tab was ended in the middle of a message")
	}
}

// answerLists answers every tools/list until the relay closes the connection, and puts the
// close frame back for the next reader.
func (p *peer) answerLists() {
	for {
		opcode, payload, err := p.readFrame()
		switch {
		case err != nil:
			return
		case opcode == opClose:
			p.in = bytes.NewReader(append([]byte{opClose | fin, byte(len(payload))}, payload...))
			return
		case strings.Contains(string(payload), "tools/list"):
			p.text(`{"jsonrpc":"2.0","id":2,"result":` + toolsResult(tools...) + `}`)
		}
	}
}

// A tab that sends without end can't keep the relay from ending.
func TestEndlessMessageDoesNotDelayTheEnd(t *testing.T) {
	d := newQuietDesk(t, func(p *Page) { p.timing.closing = 100 * time.Millisecond })
	p := d.ready(t)
	go func() {
		junk := bytes.Repeat([]byte(" "), 1<<16)
		_, err := p.conn.Write([]byte{opText | fin, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // 2^40 bytes
		for err == nil {
			_, err = p.conn.Write(junk)
		}
	}()
	d.Close()
}

func TestHandshakeThatFails(t *testing.T) {
	hello := func(version string) string {
		return `{"protocolVersion":"` + version + `","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
	}
	for name, test := range map[string]func(p *peer){
		"no answer":       func(p *peer) {},
		"an error":        func(p *peer) { p.text(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`) },
		"no object":       func(p *peer) { p.reply(p.request("initialize"), `"x"`) },
		"unknown version": func(p *peer) { p.reply(p.request("initialize"), hello("1.0")) },
		"newer version": func(p *peer) {
			p.reply(p.request("initialize"), hello("2026-07-28"))
			p.answerLists()
		},
		"no list of tools": func(p *peer) { p.reply(p.request("initialize"), hello("2025-06-18")) },
		"tools that are no list": func(p *peer) {
			p.reply(p.request("initialize"), hello("2025-06-18"))
			p.request("notifications/initialized")
			p.reply(p.request("tools/list"), `{"tools":{}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuietDesk(t, func(p *Page) { p.timing.handshake = 300 * time.Millisecond })
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
