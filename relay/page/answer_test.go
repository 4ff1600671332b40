package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client/transport"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestCellsOfTheNotebook(t *testing.T) {
	d := newDesk(t, standin.Options{Execute: standin.Fake(nil)})
	tab, ctx := d.connected(), t.Context()
	code, err := tab.AddCode(ctx, 1, "python", "a = 1\nprint(a)\n")
	if err != nil {
		t.Fatal(err)
	}
	text, err := tab.AddText(ctx, 2, "# title")
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Move(ctx, text, 0); err != nil {
		t.Fatal(err)
	}
	if err := tab.Update(ctx, text, "# other"); err != nil {
		t.Fatal(err)
	}
	all, err := tab.Cells(ctx, 0, -1, true)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d cells, %v", len(all), err)
	}
	if c := all[0]; c.ID != text || c.Type != "markdown" || c.Source != "# other" {
		t.Errorf("the first cell is %+v", c)
	}
	if c := all[2]; c.ID != code || c.Type != "code" || c.Source != "a = 1\nprint(a)\n" || c.ExecutionCount != nil {
		t.Errorf("the last cell is %+v", c)
	}
	if part, err := tab.Cells(ctx, 1, 2, false); err != nil || len(part) != 2 || part[1].ID != code {
		t.Errorf("cells 1 to 2 are %+v, %v", part, err)
	}
	if rest, err := tab.Cells(ctx, 2, -1, false); err != nil || len(rest) != 1 || rest[0].ID != code {
		t.Errorf("the cells from 2 are %+v, %v", rest, err)
	}
	if err := tab.Delete(ctx, code); err != nil {
		t.Fatal(err)
	}
	var refused *ToolError
	if err := tab.Delete(ctx, code); !errors.As(err, &refused) || refused.Tool != toolDelete {
		t.Errorf("deleting a cell that is gone: %v", err)
	}
}

// What a tab answers is bounded, and is read as what was agreed or not at all.
func TestAnswersThatCanNotBeRead(t *testing.T) {
	cells := func(n int, cell string) string {
		return `{"cells":[` + strings.TrimSuffix(strings.Repeat(cell+",", n), ",") + `]}`
	}
	cell := func(field string) string { return cells(1, `{"id":"a","cell_type":"code",`+field+`}`) }
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for name, test := range map[string]struct{ text, want string }{
		"cut":                   {`{"cells":[`, "unexpected end"},
		"no cells":              {`{}`, "no list"},
		"null":                  {`{"cells":null}`, "no list"},
		"an object":             {`{"cells":{}}`, "cannot unmarshal"},
		"a text in the list":    {cells(1, `"a"`), "cannot unmarshal"},
		"no id":                 {cells(1, `{}`), "id has 0 bytes"},
		"long id":               {cells(1, `{"id":"`+strings.Repeat("x", maxCellID+1)+`"}`), "id has 201 bytes"},
		"one cell too many":     {cells(maxCells+1, `{"id":"a"}`), "over 10000"},
		"100,000 cells":         {cells(100_000, `{}`), "over 10000"},
		"source is a number":    {cell(`"source":1`), "cannot unmarshal"},
		"a line is a number":    {cell(`"source":[1]`), "cannot unmarshal"},
		"outputs are an object": {cell(`"outputs":{}`), "no list"},
		"outputs are a text":    {cell(`"outputs":"[]"`), "no list"},
		"one output too many":   {cell(`"outputs":[` + strings.Repeat(`0,`, maxOutputs) + `0]`), "over 100000"},
		"outputs nested deep":   {cell(`"outputs":` + deep), "nested"},
		"NaN in outputs":        {cell(`"outputs":[NaN]`), "invalid character"},
		"count is a text":       {cell(`"execution_count":"1"`), "cannot unmarshal"},
		"count is a fraction":   {cell(`"execution_count":1.5`), "cannot unmarshal"},
		"count is huge":         {cell(`"execution_count":1e300`), "cannot unmarshal"},
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

func TestCellOfTooManyLines(t *testing.T) {
	var s source
	for n, want := range map[int]bool{maxLines: true, maxLines + 1: false} {
		err := s.UnmarshalJSON([]byte("[" + strings.Repeat(`"",`, n-1) + `""]`))
		if (err == nil) != want {
			t.Errorf("%d lines: %v", n, err)
		}
	}
}

func answerOf(t *testing.T, text string) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnswersThatAreFull(t *testing.T) {
	tier.Long(t)
	var result struct {
		Cells *cellList `json:"cells"`
	}
	text := `{"cells":[` + strings.TrimSuffix(strings.Repeat(`{"id":"a","source":["x\n","y"],"outputs":[{"a":[1e300,"\ud800"]}],"execution_count":null},`, maxCells), ",") + `]}`
	if err := decodeAnswer(toolCells, answerOf(t, text), &result); err != nil {
		t.Fatal(err)
	}
	if cells := *result.Cells; len(cells) != maxCells || cells[0].Source != "x\ny" || string(cells[0].Outputs) != `[{"a":[1e300,"\ud800"]}]` {
		t.Errorf("%d cells, the first is %+v", len(cells), cells[0])
	}
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
	for _, raw := range []string{`{}`, `{"content":[]}`, `{"content":[{"type":"image","data":"x"}]}`, `{"content":[{"type":"text","text":" \n"}]}`} {
		if err := decodeAnswer(toolMove, json.RawMessage(raw), &struct{}{}); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{`[]`, `"x"`, `{"content":{}}`, `{"content":[1]}`, `{"content":[{"type":1}]}`, `{"isError":"x"}`} {
		if err := decodeAnswer(toolMove, json.RawMessage(raw), &struct{}{}); !errors.Is(err, errAnswer) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestNewCellWithoutID(t *testing.T) {
	for _, text := range []string{`{}`, `{"newCellId":""}`, `{"newCellId":"` + strings.Repeat("x", maxCellID+1) + `"}`} {
		d := newDesk(t, standin.Options{Answer: func(tool string, _ json.RawMessage) (string, bool) { return text, tool == toolAddCode }})
		if id, err := d.connected().AddCode(t.Context(), 0, "python", "x"); !errors.Is(err, errAnswer) {
			t.Errorf("%.20s: id %q, %v", text, id, err)
		}
	}
}

func TestLongTextIsNotSent(t *testing.T) {
	d := newDesk(t, standin.Options{})
	tab, long := d.connected(), strings.Repeat("x", maxText+1)
	_, code := tab.AddCode(t.Context(), 0, "python", long)
	_, text := tab.AddText(t.Context(), 0, long)
	for _, err := range []error{code, text, tab.Update(t.Context(), "c", long)} {
		if err == nil || !strings.Contains(err.Error(), "16 MiB") {
			t.Errorf("got %v", err)
		}
	}
}

func TestShapeOfJSON(t *testing.T) {
	for text, want := range map[string][2]int{
		`1`: {0, 0}, `[]`: {1, 1}, `[[],{"a":1}]`: {2, 5}, `"\\[[["`: {0, 0}, `["\"[[,:","\\",[]]`: {2, 4}, `["]]\\\"",[`: {2, 3}, `]]]]`: {0, 0}, `"[`: {0, 0}, `"\`: {0, 0},
	} {
		if depth, values := shape([]byte(text)); depth != want[0] || values != want[1] {
			t.Errorf("%s: %d deep, %d values, want %v", text, depth, values, want)
		}
	}
	for text, want := range map[string]int{`[]`: 1, `[1,[2,3],{"a":4,"b":5}]`: 3, `["a,\",b",","]`: 2} {
		if n := elements([]byte(text)); n != want {
			t.Errorf("%s: %d elements, want %d", text, n, want)
		}
	}
}

// A call that was cancelled before it began sends nothing.
func TestCancelledCallSendsNothing(t *testing.T) {
	w := newWire(nil, nil, defaultTiming, maxMessage)
	if _, err := w.request(waitedOut(t), "tools/call", nil); !errors.Is(err, context.Canceled) || len(w.out) != 0 || w.next != 0 {
		t.Errorf("got %v, %d messages", err, len(w.out))
	}
}

// The SDK's client handles pings only, whatever else it would answer.
func TestOnlyPingsReachTheClient(t *testing.T) {
	w := newWire(nil, nil, defaultTiming, maxMessage)
	w.SetRequestHandler(func(context.Context, transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
		return &transport.JSONRPCResponse{Result: json.RawMessage("{}")}, nil
	})
	for method, want := range map[string]string{"ping": `"result":{}`, "roots/list": `"error":`} {
		w.receive([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`))
		if sent := string(<-w.out); !strings.Contains(sent, want) {
			t.Errorf("%s is answered with %s", method, sent)
		}
	}
}

// Answers of several calls are bounded together, and free again when they were read.
func TestAnswersAreBoundedTogether(t *testing.T) {
	w := newWire(nil, nil, defaultTiming, maxMessage)
	result := make(json.RawMessage, maxMessage)
	var replies []chan answer
	for range 3 {
		id, reply, err := w.expect()
		if err != nil {
			t.Fatal(err)
		}
		w.deliver(id, &message{Result: result})
		replies = append(replies, reply)
	}
	if a := <-replies[2]; !errors.Is(a.lost, errHeld) {
		t.Errorf("the third answer ended with %v", a.lost)
	}
	w.release(<-replies[0])
	w.forget(2, replies[1])
	if held := w.held.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// The tools of the page may have other names, or come late.
func TestToolsOfThePage(t *testing.T) {
	d := newQuietDesk(t)
	p := d.peer(t)
	p.shakeHands("add_cell\x1b[2J", toolCells)
	within.Until(t, "the tab is connected", func() bool { return d.State().Connected })
	tab, _ := d.Tab()
	if missing := tab.Missing(); len(missing) != 6 {
		t.Errorf("missing: %q", missing)
	}
	err := tab.Delete(t.Context(), "c")
	var absent *MissingToolError
	if !errors.As(err, &absent) || absent.Tool != toolDelete || !strings.Contains(err.Error(), `"add_cell" "get_cells"`) {
		t.Errorf("got %v", err)
	}
	p.text(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	within.Until(t, "the list is old", tab.stale.Load)
	ended := make(chan error, 1)
	go func() { ended <- tab.Delete(t.Context(), "c") }()
	p.reply(p.request("tools/list"), toolsResult(tools...))
	p.answerText(p.request("tools/call"), "{}")
	if err := <-ended; err != nil || len(tab.Missing()) != 0 {
		t.Errorf("%v, missing: %q", err, tab.Missing())
	}
}

// A list of tools without end is cut.
func TestEndlessListOfTools(t *testing.T) {
	for name, test := range map[string]struct {
		page  []string
		pages int
	}{
		"pages": {[]string{"a"}, maxToolPages},
		"tools": {strings.Fields(strings.Repeat("a ", maxTools+1)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuietDesk(t)
			p := d.peer(t)
			p.reply(p.request("initialize"), `{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
			p.request("notifications/initialized")
			for i := range test.pages {
				p.reply(p.request("tools/list"), strings.TrimSuffix(toolsResult(test.page...), "}")+fmt.Sprintf(`,"nextCursor":"%d"}`, i))
			}
			within.Until(t, "the tab is connected", func() bool { return d.State().Connected })
			tab, _ := d.Tab()
			if n := len(tab.tools); n > maxTools {
				t.Errorf("%d tools are known", n)
			}
		})
	}
}

// The text of an error takes memory as a result does.
func TestErrorsCountAsHeld(t *testing.T) {
	w := newWire(nil, nil, defaultTiming, maxMessage)
	id, reply, err := w.expect()
	if err != nil {
		t.Fatal(err)
	}
	w.deliver(id, &message{Error: &rpcError{Message: "too long"}})
	if held := w.held.Load(); held != 8 {
		t.Errorf("%d bytes are held", held)
	}
	w.forget(id, reply)
	if held := w.held.Load(); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}
