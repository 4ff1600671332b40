package output

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
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

// small are limits that a short test exceeds.
var small = Limits{Text: 300, Outputs: 10, Payload: 200, Payloads: 4 * minBlob, Saved: 100_000, Kept: 1 << 20}

// saver is a SaveText that keeps texts in memory.
type saver map[string][]byte

func (s saver) save(key string, offset int64, text []byte) (string, error) {
	if offset > int64(len(s[key])) {
		return "", fmt.Errorf("a gap before %d", offset)
	}
	if s[key] = append(s[key][:offset:offset], text...); len(s[key]) == 0 {
		delete(s, key)
	}
	return key + ".txt", nil
}

// fetchNumber serves payloads whose content depends on their number only.
func fetchNumber(_ context.Context, blob contract.Blob, w io.Writer) error {
	if blob.Number == 9 {
		return io.ErrUnexpectedEOF
	}
	_, err := io.WriteString(w, strings.Repeat(fmt.Sprint(blob.Number), int(blob.Bytes)))
	return err
}

// read returns the outputs of two cells whose events arrive in pieces, and their saved texts. The
// second cell begins when the first one's events are there.
func read(t *testing.T, cells [2][][]contract.Event) string {
	t.Helper()
	saved := saver{}
	c := Collector{Limits: small, Save: saved.save}
	for i, pieces := range cells {
		cell := c.Begin(fmt.Sprint(i))
		for _, piece := range pieces {
			cell.Add(t.Context(), piece, fetchNumber)
			cell.Outputs()
		}
		for range maxTries {
			cell.Add(t.Context(), nil, fetchNumber)
		}
	}
	return fmt.Sprintf("%s\n%s\n%q", joined(t, c.Outputs("0")), joined(t, c.Outputs("1")), saved)
}
