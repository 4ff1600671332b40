// Package output makes the outputs of a notebook's cell from the events of its execution, as a
// notebook's page does.
//
// It must not know notebooks' files or where events come from. Whatever an executor sends, an
// output is valid for nbformat, and its size and the time it takes are bounded. Start reading at
// Collector.
package output

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// MaxPayload bounds a picture or other payload that is fetched, and maxFetched all that one
// Collector fetches: a run's events may name one payload a million times. What is larger is
// left out, and its place says so.
const (
	MaxPayload = 32 << 20
	maxFetched = 256 << 20
)

// maxUpdated bounds the displays of one id that an update changes: the newest.
const maxUpdated = 100

// maxDepth bounds JSON payloads, because each level indents all that is in it.
const maxDepth = 32

// errDepth is JSON that is none, or nested deeper than maxDepth.
var errDepth = fmt.Errorf("no JSON, or nested deeper than %d", maxDepth)

// Fetch writes a payload that is not in its event.
type Fetch func(ctx context.Context, blob contract.Blob, w io.Writer) error

// Collector makes outputs from the events of executions, as a notebook's page does: it joins
// streams, folds progress bars, and follows clear_output and update_display_data, also into
// earlier cells. The zero value is ready for use.
type Collector struct {
	displays map[string][]*Output // by display id
	fetched  int64
}

// cell is a cell whose outputs are being collected.
type cell struct {
	*Collector
	ctx     context.Context
	fetch   Fetch
	outputs []*Output
	text    strings.Builder            // of the last output while that is a stream
	clear   bool                       // before the next output
	updates map[string]*contract.Event // by display id: the newest, not yet applied
}

// Cell returns the outputs of one execution with these events, in order. They may change while
// later cells are collected.
func (c *Collector) Cell(ctx context.Context, events []contract.Event, fetch Fetch) []*Output {
	if c.displays == nil {
		c.displays = map[string][]*Output{}
	}
	x := &cell{Collector: c, ctx: ctx, fetch: fetch, updates: map[string]*contract.Event{}}
	for i := range events {
		x.add(&events[i])
	}
	for _, id := range slices.Sorted(maps.Keys(x.updates)) {
		x.update(id)
	}
	x.endStream()
	return x.outputs
}

func (c *cell) add(ev *contract.Event) {
	if c.clear && ev.Type != contract.EventClearOutput && ev.Type != contract.EventUpdateDisplayData {
		c.reset()
		c.clear = false
	}
	if ev.Cut != "" || ev.Type == contract.EventGap {
		c.missing(ev)
	}
	switch ev.Type {
	case contract.EventStream:
		c.stream(ev.Name, ev.Text)
	case contract.EventDisplayData, contract.EventExecuteResult:
		c.display(ev)
	case contract.EventUpdateDisplayData:
		if len(c.displays[ev.DisplayID]) > 0 {
			c.updates[ev.DisplayID] = ev
		}
	case contract.EventError:
		c.append(failure(ev))
	case contract.EventClearOutput:
		if c.clear = ev.Wait; !ev.Wait {
			c.reset()
		}
	case contract.EventInputRequest: // a page shows the prompt in an input box, which is not kept
		c.stream(contract.Stdout, ev.Prompt+"\n")
	}
}

// failure returns the output of an exception. One without a traceback, as of sys.exit, shows
// its name: programs display nothing else of an error.
func failure(ev *contract.Event) *Output {
	o := &Output{Type: Error, EName: ev.EName, EValue: ev.EValue, Traceback: ev.Traceback}
	if len(o.Traceback) == 0 {
		o.Traceback = []string{strings.TrimSuffix(ev.EName+": "+ev.EValue, ": ")}
	}
	return o
}

// missing marks output that is not there.
func (c *cell) missing(ev *contract.Event) {
	why := ev.Cut
	if why == "" {
		why = fmt.Sprintf("%d bytes, because the VM does not keep that much of one run", ev.Bytes)
	}
	c.stream(contract.Stderr, "[output is missing here: "+why+"]\n")
}

func (c *cell) stream(name, text string) {
	if name != contract.Stderr {
		name = contract.Stdout
	}
	if n := len(c.outputs); n == 0 || c.outputs[n-1].Type != Stream || c.outputs[n-1].Name != name {
		c.append(&Output{Type: Stream, Name: name})
	}
	c.text.WriteString(text)
}

// append begins a new output.
func (c *cell) append(o *Output) {
	c.endStream()
	c.outputs = append(c.outputs, o)
}

// endStream completes the last output if it is a stream.
func (c *cell) endStream() {
	if n := len(c.outputs); n > 0 && c.outputs[n-1].Type == Stream {
		c.outputs[n-1].Text = fold(c.text.String())
		c.text.Reset()
	}
}

// reset deletes all outputs.
func (c *cell) reset() {
	c.outputs = nil
	c.text.Reset()
}

func (c *cell) display(ev *contract.Event) {
	if ofRelay(ev) {
		return
	}
	o := &Output{Type: DisplayData, Data: c.data(ev), Metadata: object(ev.Metadata)}
	if ev.Type == contract.EventExecuteResult {
		o.Type, o.ExecutionCount = ExecuteResult, ev.ExecutionCount
	}
	c.append(o)
	if ev.DisplayID == "" {
		return
	}
	c.update(ev.DisplayID) // which is older than this display
	shown := c.displays[ev.DisplayID]
	c.displays[ev.DisplayID] = append(shown[max(0, len(shown)-maxUpdated+1):], o)
}

// update changes the displays of an id as its newest update says. The updates before that one
// leave no trace, so nobody reads their payloads.
func (c *cell) update(id string) {
	ev := c.updates[id]
	if ev == nil {
		return
	}
	delete(c.updates, id)
	data, metadata := c.data(ev), object(ev.Metadata)
	for _, o := range c.displays[id] {
		o.Data, o.Metadata = data, metadata
	}
}

// ofRelay reports whether a display is a report of the relay's own code in the kernel.
func ofRelay(ev *contract.Event) bool {
	for mime := range ev.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}

// data returns an event's payloads. What cannot be read is named in text/plain.
func (c *cell) data(ev *contract.Event) map[string]any {
	data := map[string]any{}
	var lost []string
	for mime, raw := range ev.Data {
		payload, err := c.payload(mime, raw)
		if err != nil {
			lost = append(lost, strings.ToValidUTF8(mime, "?"))
			continue
		}
		data[strings.ToValidUTF8(mime, "?")] = payload
	}
	if slices.Sort(lost); len(lost) > 0 {
		text, _ := data["text/plain"].(string)
		data["text/plain"] = strings.TrimPrefix(text+"\n", "\n") + "[not kept: " + strings.Join(lost, ", ") + "]"
	}
	return data
}

func (c *cell) payload(mime string, raw json.RawMessage) (any, error) {
	var ref contract.BlobRef
	if len(raw) < 300 && bytes.HasPrefix(raw, []byte("{")) && json.Unmarshal(raw, &ref) == nil && ref.Blob.SHA256 != "" {
		return c.blob(mime, ref.Blob)
	}
	if IsJSON(mime) {
		return parse(raw)
	}
	return lines(raw)
}

// lines returns a text that is a string or, as a kernel may also send it, a list of lines.
func lines(raw json.RawMessage) (text string, err error) {
	if !bytes.HasPrefix(raw, []byte("[")) {
		err = json.Unmarshal(raw, &text)
		return ValidText(text), err
	}
	var all []string
	err = json.Unmarshal(raw, &all)
	return ValidText(strings.Join(all, "")), err
}

func (c *cell) blob(mime string, blob contract.Blob) (any, error) {
	if blob.Bytes > min(MaxPayload, maxFetched-c.fetched) || c.fetched >= maxFetched || c.fetch == nil {
		return nil, fmt.Errorf("a payload of %d bytes is not read", blob.Bytes)
	}
	var b bytes.Buffer
	err := c.fetch(c.ctx, blob, &b)
	c.fetched += int64(b.Len()) // which need not be blob.Bytes
	if err != nil {
		return nil, err
	}
	switch {
	case IsJSON(mime):
		return parse(b.Bytes())
	case IsBase64(mime):
		return base64.StdEncoding.EncodeToString(b.Bytes()), nil
	}
	return ValidText(b.String()), nil
}

// IsBase64 reports whether payloads of this type are written as base64. SVG is text.
func IsBase64(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return mime != "image/svg+xml" && slices.Contains([]string{"image", "audio", "video"}, kind) || mime == "application/pdf"
}

// parse returns JSON as a value that is written with its keys in order and its numbers as they
// are.
func parse(raw []byte) (value any, err error) {
	if !json.Valid(raw) || depth(raw) > maxDepth {
		return nil, errDepth
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// depth returns how deep the arrays and objects of a JSON text are nested.
func depth(raw []byte) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{', b == '[':
			level++
			deepest = max(deepest, level)
		case b == '}', b == ']':
			level--
		}
	}
	return deepest
}

// object returns raw as an object, or nil if it is none.
func object(raw json.RawMessage) map[string]any {
	value, _ := parse(raw)
	found, _ := value.(map[string]any)
	return found
}
