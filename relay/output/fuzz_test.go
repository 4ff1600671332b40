package output

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

// FuzzEvents makes outputs of any events, one a line. They have nbformat's form, and they are the
// same if the events come one by one.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"stream","name":"stderr","text":"a\rb\n\u001b[1A"}` + "\n" + `{"type":"error","ename":"E","traceback":["\udfff"]}`))
	f.Add([]byte(`{"type":"display_data","display_id":"d","data":{"image/png":"AA=","application/json":{"a":[1e999]}},"metadata":{"a":1}}` + "\n" + `{"type":"update_display_data","display_id":"d","data":{"text/html":["a","b"]}}`))
	f.Add([]byte(`{"type":"execute_result","execution_count":-1,"data":{"image/png":{"blob":{"number":9,"sha256":"x","bytes":5}}}}`))
	f.Add([]byte(`{"type":"clear_output","wait":true}` + "\n" + `{"type":"gap","bytes":-3,"cut":"c"}` + "\n" + `{"type":"input_request","prompt":"p"}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		var events []contract.Event
		for line := range bytes.Lines(lines) {
			var ev contract.Event
			if json.Unmarshal(line, &ev) == nil && len(ev.Data) < 10 {
				events = append(events, ev)
			}
		}
		whole := read(t, [2][][]contract.Event{{events}, {events}})
		each := slices.Collect(slices.Chunk(events, 1))
		if got := read(t, [2][][]contract.Event{each, each}); got != whole {
			t.Errorf("one by one:\n%s\nat once:\n%s", got, whole)
		}
		for _, o := range collect(t, new(Collector), events, fetchNumber) {
			wantForm(t, o.Object())
		}
	})
}

// wantForm checks an output against nbformat's schema: the keys, their types, and UTF-8.
func wantForm(t *testing.T, object map[string]any) {
	t.Helper()
	keys := map[any]int{"stream": 3, "error": 4, "display_data": 3, "execute_result": 4}
	if len(object) != keys[object["output_type"]] {
		t.Errorf("an output has the form %v", object)
	}
	text, err := json.Marshal(object)
	var back struct {
		Name      *string                    `json:"name"`
		Text      []string                   `json:"text"`
		Traceback []string                   `json:"traceback"`
		Data      map[string]json.RawMessage `json:"data"`
		Metadata  map[string]json.RawMessage `json:"metadata"`
		Count     *uint                      `json:"execution_count"`
	}
	if err != nil || json.Unmarshal(text, &back) != nil {
		t.Errorf("%.300q, %v", text, err)
	}
	for mime, payload := range back.Data {
		if !isJSON(mime) && payload[0] != '"' && payload[0] != '[' {
			t.Errorf("%q is %.100s", mime, payload)
		}
	}
}
