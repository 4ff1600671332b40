package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// FuzzFrames gives a wire any sequence of messages, one a line, while three calls wait. None
// of them crashes it, what it holds stays bounded, and a call ends only by its own answer, or
// not at all.
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
		notified := 0
		w.SetNotificationHandler(func(mcp.JSONRPCNotification) { notified++ })
		w.SetRequestHandler(func(context.Context, transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
			return &transport.JSONRPCResponse{Result: json.RawMessage("{}")}, nil
		})
		replies := map[int64]chan answer{}
		for range 3 {
			id, reply, err := w.expect()
			if err != nil {
				t.Fatal(err)
			}
			replies[id] = reply
		}
		expected := map[int64]bool{}
		for _, text := range bytes.Split(messages, []byte("\n")) {
			id, answers := model(text)
			why := w.receive(text)
			if answers != (why == nil && answers) {
				t.Fatalf("%q ended the connection with %v", text, why)
			}
			if answers {
				expected[id] = true
			}
			drain(t, w)
			if why != nil {
				break
			}
		}
		for id, reply := range replies {
			select {
			case a := <-reply:
				if !expected[id] {
					t.Errorf("call %d ended with %s, %v, which nobody sent", id, a.result, a.err)
				}
				read(t, &a)
				w.release(a)
			default:
				if expected[id] {
					t.Errorf("call %d has no answer", id)
				}
			}
		}
		if len(w.pending)+len(expected) < 3 || len(w.pending) > 3 || w.held.Load() != 0 {
			t.Errorf("%d calls wait, %d bytes are held", len(w.pending), w.held.Load())
		}
	})
}

// model returns the id of a call that a message answers, read in another way than the wire
// does.
func model(text []byte) (id int64, answers bool) {
	if _, err := decodeMessage(text); err != nil {
		return 0, false
	}
	fields := map[string]json.RawMessage{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	_, _ = decoder.Token() // the brace
	for decoder.More() {
		var value json.RawMessage
		key, _ := decoder.Token()
		if decoder.Decode(&value) != nil {
			return 0, false
		}
		// The last of equal names counts, whatever their case.
		name := string(bytes.ToLower([]byte(key.(string))))
		if name == "method" && string(value) == "null" {
			continue
		}
		fields[name] = value
	}
	if method, ok := fields["method"]; ok && string(method) != `""` {
		return 0, false
	}
	id, err := strconv.ParseInt(string(fields["id"]), 10, 64)
	return id, err == nil && id >= 1 && id <= 3
}

// drain checks what the wire sends, which it must not collect.
func drain(t *testing.T, w *wire) {
	t.Helper()
	if n := len(w.out); n > 1 {
		t.Fatalf("one message made %d", n)
	}
	select {
	case sent := <-w.out:
		var m struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  json.RawMessage `json:"result"`
			Error   *rpcError       `json:"error"`
		}
		if err := json.Unmarshal(sent, &m); err != nil || m.Version != "2.0" || len(m.ID) == 0 || (m.Result == nil) == (m.Error == nil) || len(sent) > 1000 {
			t.Fatalf("the wire sent %s, %v", sent, err)
		}
	default:
	}
}

// read reads an answer as all tools do; cells that were read stay within their bounds.
func read(t *testing.T, a *answer) {
	t.Helper()
	if a.err != nil {
		_ = newToolError(toolCells, a.err.Code, a.err.Message).Error()
		return
	}
	var result struct {
		ID      string      `json:"newCellId"`
		Cells   *cellList   `json:"cells"`
		Outputs *outputList `json:"outputs"`
	}
	if err := decodeAnswer(toolCells, a.result, &result); err != nil || result.Cells == nil {
		return
	}
	if len(*result.Cells) > maxCells {
		t.Errorf("there are %d cells", len(*result.Cells))
	}
	for _, c := range *result.Cells {
		if c.ID == "" || len(c.ID) > maxCellID || c.Outputs != nil && (!json.Valid(c.Outputs) || c.Outputs[0] != '[') {
			t.Errorf("there is a cell %+v", c)
		}
		_ = ended(&c)
	}
}

// Whatever bytes a tab sends, the connection ends or goes on, and the slot is free for the
// next one when the tab has gone. It is a sample; FuzzFrames has the messages.
func TestAnyBytesOfATab(t *testing.T) {
	d := newQuietDesk(t, short)
	random := newRandom(1)
	for i := range 150 {
		p := d.peer(t)
		d.taken(t)
		var sent []byte
		for range 1 + random.IntN(4) {
			payload := make([]byte, random.IntN(200))
			for j := range payload {
				payload[j] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				payload = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":%d}}`, random.IntN(3), i)
			}
			next := frame(byte(random.Uint32()), payload)
			sent = append(sent, next[:len(next)-random.IntN(2)*random.IntN(len(next))]...)
		}
		p.write(sent)
		p.conn.Close()
		d.free(t)
	}
	d.ready(t)
}
