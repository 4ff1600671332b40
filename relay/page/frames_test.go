package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// FuzzFrames gives a wire any sequence of messages, one a line, while three calls wait. None
// of them crashes it, and what it holds and sends stays bounded.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"cells\":[{\"id\":\"a\"}]}"}]}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":1,\"message\":\"x\"}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}",
		"{\"jsonrpc\":\"2.0\",\"id\":\"3\",\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":3.0,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"ID\":3,\"Result\":null}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1}\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}",
		`{"jsonrpc":"2.0","id":1,"id":2,"result":{},"result":[]}`,
		`[[[[{"a":"\ud800"}]]]]`, "\xff", "null", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, messages []byte) {
		w := newWire(nil, defaultTiming, maxMessage)
		calls := map[int64]*call{}
		for range 3 {
			c := &call{done: make(chan struct{})}
			c.read = func(m *message) error {
				var result struct{ Cells *cellList }
				if m.Error == nil && decodeAnswer(toolCells, m.Result, &result) == nil && result.Cells != nil && len(*result.Cells) > maxCells {
					t.Errorf("there are %d cells", len(*result.Cells))
				}
				return nil
			}
			id, err := w.expect(c)
			must(t, err)
			calls[id] = c
		}
		for _, text := range bytes.Split(messages, []byte("\n")) {
			why := w.receive(text)
			if n := len(w.out); n > 1 {
				t.Fatalf("one message made %d", n)
			}
			if len(w.out) > 0 {
				if sent := <-w.out; !json.Valid(sent) || len(sent) > 1000 {
					t.Fatalf("the wire sent %s", sent)
				}
			}
			if why != nil {
				break
			}
		}
		for id, c := range calls {
			select {
			case <-c.done:
				if _, waits := w.pending[id]; waits {
					t.Errorf("call %d has ended and waits", id)
				}
			default:
			}
		}
		if len(w.pending) > 3 {
			t.Errorf("%d calls wait", len(w.pending))
		}
	})
}

// What a tab answers is bounded, and is read as what was agreed or not at all.
func TestAnswersThatCanNotBeRead(t *testing.T) {
	cells := func(n int, cell string) string {
		return `{"cells":[` + strings.TrimSuffix(strings.Repeat(cell+",", n), ",") + `]}`
	}
	cell := func(field string) string { return cells(1, `{"id":"a","cell_type":"code",`+field+`}`) }
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for name, test := range map[string]struct{ text, want string }{
		"cut":                 {`{"cells":[`, "unexpected end"},
		"no cells":            {`{}`, "no list"},
		"no id":               {cells(1, `{}`), "id has 0 bytes"},
		"long id":             {cells(1, `{"id":"`+strings.Repeat("x", maxCellID+1)+`"}`), "id has 201 bytes"},
		"one cell too many":   {cells(maxCells+1, `{"id":"a"}`), "over 10000"},
		"a line is a number":  {cell(`"source":[1]`), "cannot unmarshal"},
		"outputs are a text":  {cell(`"outputs":"[]"`), "no list"},
		"one output too many": {cell(`"outputs":[` + strings.Repeat(`0,`, maxOutputs) + `0]`), "over 100000"},
		"outputs nested deep": {cell(`"outputs":` + deep), "nested"},
		"count is a fraction": {cell(`"execution_count":1.5`), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			var result struct {
				Cells *cellList `json:"cells"`
			}
			err := decodeAnswer(toolCells, answerOf(t, test.text), &result)
			if err == nil && result.Cells == nil {
				err = fmt.Errorf("%w: there is no list", errAnswer)
			}
			if !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func answerOf(t *testing.T, text string) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
	must(t, err)
	return raw
}

// The page's own words are an error, bounded and safe to show.
func TestWordsInsteadOfJSON(t *testing.T) {
	for name, text := range map[string]string{
		"words": "Cell not found\x1b]0;x\x07", "a list": "[1]", "long": strings.Repeat("x", 1<<20),
	} {
		err := decodeAnswer(toolMove, answerOf(t, text), &struct{}{})
		var refused *ToolError
		if !errors.As(err, &refused) || refused.Tool != toolMove || len(refused.Text) > maxError+10 || strings.Contains(refused.Text, "\x1b") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	failed := json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"{\"a\":1}"}]}`)
	if err := decodeAnswer(toolMove, failed, &struct{}{}); err == nil || !strings.Contains(err.Error(), "refused move_cell") {
		t.Errorf("an answer that is an error: %v", err)
	}
	for _, raw := range []string{`[]`, `{"content":[1]}`, `{"isError":"x"}`} {
		if err := decodeAnswer(toolMove, json.RawMessage(raw), &struct{}{}); !errors.Is(err, errAnswer) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
