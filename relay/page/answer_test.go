package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
