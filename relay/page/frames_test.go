package page

import (
	"bytes"
	"errors"
	"strings"
	"testing"

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
