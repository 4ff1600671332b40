package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func print(text string) contract.Event {
	return contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: text}
}

func show(typ contract.EventType, id, data string) contract.Event {
	ev := contract.Event{Type: typ, DisplayID: id, Metadata: json.RawMessage(`{"isolated": true}`), ExecutionCount: 7}
	if err := json.Unmarshal([]byte(data), &ev.Data); err != nil {
		panic(err)
	}
	return ev
}

// joined returns the outputs as JSON without white space.
func joined(t *testing.T, outputs []*Output) string {
	t.Helper()
	var all []string
	for _, o := range outputs {
		text, err := json.Marshal(o.Object())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n")
}

func fetchWord(_ context.Context, blob contract.Blob, w io.Writer) error {
	if blob.Number > 1 {
		return errors.New("it is gone")
	}
	_, err := io.WriteString(w, "bytes")
	return err
}

const blobRef = `{"blob":{"number":1,"sha256":"x","bytes":5}}`

func TestOutputsOfEvents(t *testing.T) {
	for name, test := range map[string]struct {
		events []contract.Event
		want   string
	}{
		"streams are joined": {
			[]contract.Event{print("a\nb"), print("c"), {Type: contract.EventStream, Name: contract.Stderr, Text: "e"}, print("d")},
			`{"name":"stdout","output_type":"stream","text":["a\n","bc"]}` + "\n" + `{"name":"stderr","output_type":"stream","text":["e"]}` + "\n" + `{"name":"stdout","output_type":"stream","text":["d"]}`,
		},
		"progress bars are folded": {
			[]contract.Event{print("10%\r20%"), print("\r100%\r\nok\rX\nlong line\rshort\n")},
			`{"name":"stdout","output_type":"stream","text":["100%\n","Xk\n","shortline\n"]}`,
		},
		"clear_output": {[]contract.Event{print("a"), {Type: contract.EventClearOutput}, print("b")}, `{"name":"stdout","output_type":"stream","text":["b"]}`},
		"clear_output that waited": {
			[]contract.Event{print("a"), {Type: contract.EventClearOutput, Wait: true}, print("b")}, `{"name":"stdout","output_type":"stream","text":["b"]}`,
		},
		"a result": {
			[]contract.Event{show(contract.EventExecuteResult, "", `{"text/plain": "1\n2", "application/json": {"a": [1]}}`)},
			`{"data":{"application/json":{"a":[1]},"text/plain":["1\n","2"]},"execution_count":7,"metadata":{"isolated":true},"output_type":"execute_result"}`,
		},
		"an update": {
			[]contract.Event{show(contract.EventDisplayData, "d", `{"text/plain": "old"}`), print("x"), show(contract.EventUpdateDisplayData, "d", `{"text/plain": "new"}`)},
			`{"data":{"text/plain":["new"]},"metadata":{"isolated":true},"output_type":"display_data"}` + "\n" + `{"name":"stdout","output_type":"stream","text":["x"]}`,
		},
		"blobs": {
			[]contract.Event{show(contract.EventDisplayData, "", `{"image/png": `+blobRef+`, "text/html": `+blobRef+`, "image/gif": {"blob":{"number":2,"sha256":"x","bytes":5}}}`)},
			`{"data":{"image/png":"Ynl0ZXM=","text/html":["bytes"],"text/plain":["[not kept: image/gif]"]},"metadata":{"isolated":true},"output_type":"display_data"}`,
		},
		"an error": {[]contract.Event{{Type: contract.EventError, EName: "E", EValue: "v"}}, `{"ename":"E","evalue":"v","output_type":"error","traceback":["E: v"]}`},
		"a long error": {
			[]contract.Event{{Type: contract.EventError, EName: "E", Traceback: []string{"cut"}, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(blobRef)}}},
			`{"ename":"E","evalue":"","output_type":"error","traceback":["bytes"]}`,
		},
		"a gap": {[]contract.Event{{Type: contract.EventGap, Cut: "reason"}}, `{"name":"stderr","output_type":"stream","text":["[output is missing here: reason]\n"]}`},
	} {
		var c Collector
		if got := joined(t, collect(t, &c, test.events, fetchWord)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

func TestAnUpdateReachesAnEarlierCell(t *testing.T) {
	var c Collector
	first, second := c.Begin("first"), c.Begin("second")
	first.Add(t.Context(), []contract.Event{show(contract.EventDisplayData, "d", `{"text/plain": "old"}`)}, nil)
	before := first.Outputs()
	second.Add(t.Context(), []contract.Event{show(contract.EventUpdateDisplayData, "d", `{"image/png": `+blobRef+`}`)}, fetchWord)
	if got := c.Changed(); !slices.Equal(got, []string{"first"}) || len(c.Changed()) > 0 || len(second.Outputs()) > 0 {
		t.Errorf("%q changed; %+v", got, second.Outputs())
	}
	if after := first.Outputs(); before[0].Data["text/plain"] != "old" || after[0].Data["image/png"] != "Ynl0ZXM=" {
		t.Errorf("%+v, then %+v", before[0], after[0])
	}
	second.Add(t.Context(), []contract.Event{show(contract.EventDisplayData, "d", `{"text/plain": "new"}`)}, nil)
	if after := first.Outputs(); after[0].Data["text/plain"] != "new" || !slices.Equal(c.Changed(), []string{"first"}) {
		t.Errorf("a display with the id of an earlier one: %+v", after[0])
	}
	first = c.Begin("first")
	second.Add(t.Context(), []contract.Event{show(contract.EventUpdateDisplayData, "d", `{"text/plain": "newer"}`)}, nil)
	if got := first.Outputs(); len(got) > 0 || len(c.Changed()) > 0 || second.Outputs()[0].Data["text/plain"] != "newer" {
		t.Errorf("a cell that began anew has %+v", got)
	}
}

// collect returns the outputs of one cell.
func collect(t *testing.T, c *Collector, events []contract.Event, fetch Fetch) []*Output {
	t.Helper()
	defer c.Close()
	cell := c.Begin("")
	cell.Add(t.Context(), events, fetch)
	return cell.Outputs()
}

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
var small = Limits{Text: 300, Outputs: 10, Payload: 200, Payloads: 4 * minBlob, Kept: 1 << 20}

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
	var begun []*Cell
	for i, pieces := range cells {
		cell := c.Begin(fmt.Sprint(i))
		begun = append(begun, cell)
		for _, piece := range pieces {
			cell.Add(t.Context(), piece, fetchNumber)
			cell.Outputs()
		}
	}
	return fmt.Sprintf("%s\n%s\n%q", joined(t, begun[0].Outputs()), joined(t, begun[1].Outputs()), saved)
}
