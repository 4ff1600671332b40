package page

import (
	"bytes"
	"encoding/json"
	"testing"
)

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
		w := newWire(nil, nil, defaultTiming, maxMessage)
		replies := map[int64]chan answer{}
		for range 3 {
			id, reply, err := w.expect()
			if err != nil {
				t.Fatal(err)
			}
			replies[id] = reply
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
		for id, reply := range replies {
			select {
			case a := <-reply:
				if _, waits := w.pending[id]; waits {
					t.Errorf("call %d has ended and waits", id)
				}
				var result struct{ Cells *cellList }
				if a.err == nil && decodeAnswer(toolCells, a.result, &result) == nil && result.Cells != nil && len(*result.Cells) > maxCells {
					t.Errorf("there are %d cells", len(*result.Cells))
				}
				w.release(a)
			default:
			}
		}
		if len(w.pending) > 3 || w.held.Load() != 0 {
			t.Errorf("%d calls wait, %d bytes are held", len(w.pending), w.held.Load())
		}
	})
}
