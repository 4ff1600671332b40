package comm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/widgets"
)

// message is one of a kernel, whose parent is the request "run".
func message(kind, content string) *jupyter.Message {
	return &jupyter.Message{Header: jupyter.Header{MsgType: kind}, ParentHeader: jupyter.Header{MsgID: "run"}, Content: json.RawMessage(content)}
}

func stream(text string) *jupyter.Message {
	return message(jupyter.MsgStream, fmt.Sprintf(`{"name": "stdout", "text": %q}`, text))
}

// output opens an Output widget that a display shows.
func output(b *comm.Board, id string) {
	b.Message(message("comm_open", fmt.Sprintf(`{"comm_id": %q, "target_name": "jupyter.widget", "data": {"state": {"_model_name": "OutputModel", "msg_id": "", "outputs": []}}}`, id)))
	b.Show("run", "", id)
}

func enter(b *comm.Board, id, msgID string) {
	b.Message(message("comm_msg", fmt.Sprintf(`{"comm_id": %q, "data": {"method": "update", "state": {"msg_id": %q}}}`, id, msgID)))
}

// text is what the display of a widget shows, if that has changed.
func text(b *comm.Board, id string) string {
	for _, v := range b.Views(time.Time{}) {
		if v.DisplayID == "widget:"+id {
			return v.Text
		}
	}
	return "unchanged"
}

func TestOutputOfABlockBelongsToItsWidget(t *testing.T) {
	b := &comm.Board{}
	output(b, "outer")
	output(b, "inner")
	if due, ok := b.Due(); !ok || time.Now().Before(due) {
		t.Errorf("the first texts are due at %s, %t", due, ok)
	}
	if b.Capture(stream("before")) {
		t.Error("output before the block was captured")
	}
	enter(b, "outer", "run")
	b.Capture(stream("a"))
	enter(b, "inner", "run")
	b.Capture(stream("b"))
	b.Capture(message(jupyter.MsgClearOutput, `{"wait": true}`))
	b.Capture(stream("c"))
	enter(b, "inner", "")
	b.Capture(stream("d\n"))
	enter(b, "outer", "")
	if b.Capture(stream("after")) {
		t.Error("output after the block was captured")
	}
	views := fmt.Sprint(b.Views(time.Time{}))
	if want := "[{widget:outer ad} {widget:inner c}]"; views != want {
		t.Errorf("the widgets show %s, want %s", views, want)
	}
	var m widgets.Model
	want := `[{"output_type":"stream","name":"stdout","text":"ad\n"}]`
	if err := json.Unmarshal(b.States()["outer"], &m); err != nil || string(m.State["outputs"]) != want {
		t.Errorf("the state has %s, %v, want %s", m.State["outputs"], err, want)
	}
	if again := b.States(); len(again) != 0 {
		t.Errorf("the states are told twice: %s", again)
	}
}

// What code in the kernel sends without end is bounded, and output that a widget has no room for is the
// run's own.
func TestWidgetsAreBounded(t *testing.T) {
	b := &comm.Board{}
	output(b, "w")
	enter(b, "w", "run")
	captured := 0
	for range 1000 {
		if b.Capture(stream(strings.Repeat("x", 1000))) {
			captured++
		}
	}
	if shown := text(b, "w"); captured < 100 || captured > 300 || len(shown) > 20_000 {
		t.Errorf("%d outputs were captured, and the text has %d bytes", captured, len(shown))
	}
	for i := range 45 {
		big := fmt.Sprintf(`{"comm_id": "m%d", "target_name": "jupyter.widget", "data": {"state": {"_model_name": "LabelModel", "value": %q}}}`, i, strings.Repeat("x", 400_000))
		b.Message(message("comm_open", big))
		b.Show("run", "", fmt.Sprintf("m%d", i))
	}
	size := 0
	for _, state := range b.States() {
		size += len(state)
	}
	if size > 17<<20 || size < 10<<20 {
		t.Errorf("%d bytes of states are kept", size)
	}
	b.Message(message("comm_msg", fmt.Sprintf(`{"comm_id": "m44", "data": {"state": {"value": %q}}}`, strings.Repeat("y", 600_000))))
	if shown := text(b, "m44"); shown != "" {
		t.Errorf("a widget shows %.100q after a state that is too large", shown)
	}
	b.Message(message("comm_msg", `{"comm_id": "m42", "data": {"state": {"value": "x", "other": [`+strings.Repeat("0,", 20_000)+`0]}}}`))
	if shown := text(b, "m42"); shown != "" {
		t.Errorf("a widget shows %.100q after a state that no relay reads", shown)
	}
	b.Message(message("comm_msg", `{"comm_id": "m44", "data": {"state": {"outputs": "no list", "msg_id": 7}}}`))
	b.Message(message("comm_close", `{"comm_id": "m43"}`))
	if shown := text(b, "m43"); shown != "" {
		t.Errorf("a closed widget shows %.100q", shown)
	}
}
