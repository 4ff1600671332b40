package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// display is the current state of one display_data or execute_result.
type display struct {
	offset int64
	typ    contract.EventType
	id     string
	data   map[string]json.RawMessage
	widget bool // its text is that of a widget
}

// displays keeps the newest maxOutputs outputs in memory, and of their payloads what a view
// shows or saves: texts, pictures and references. An honest executor sends payloads over
// contract.InlineMIMEBytes as references. What calls hold together is bounded (memory.Displays).
type displays struct {
	all     []display
	dropped int
	noRoom  int   // whose payloads were dropped because other calls hold too much
	held    int64 // bytes of payloads
}

// hold counts the payloads of one more display, and returns what is kept of them: none if there is
// no room for them.
func (d *displays) hold(data map[string]json.RawMessage) map[string]json.RawMessage {
	kept := make(map[string]json.RawMessage, len(data))
	for mime, payload := range data {
		if _, isBlob := output.BlobOf(payload); !isBlob && mime != "text/plain" && !strings.HasPrefix(mime, "image/") {
			payload = nil // only its type is shown
		}
		kept[mime] = payload
	}
	if !d.grow(sizeOf(kept)) {
		d.noRoom++
		return map[string]json.RawMessage{}
	}
	return kept
}

// grow counts so many bytes more, or less, unless the budget has no room for them.
func (d *displays) grow(by int64) bool {
	over := func(held int64) int64 { return max(0, held-memory.FreeDisplays) }
	more := over(d.held+by) - over(d.held)
	if more > 0 && !memory.Displays.Take(more) {
		return false
	}
	if more < 0 {
		memory.Displays.Return(-more)
	}
	d.held += by
	return true
}

func sizeOf(data map[string]json.RawMessage) (size int64) {
	for mime, payload := range data {
		size += int64(len(mime) + len(payload))
	}
	return size
}

// release forgets displays.
func (d *displays) release(gone ...display) {
	for _, each := range gone {
		d.grow(-sizeOf(each.data))
	}
}

// free forgets all displays, and counts none any more.
func (d *displays) free() {
	d.release(d.all...)
	d.all = nil
}

func (d *displays) add(ev contract.Event) {
	if len(d.all) >= maxOutputs {
		d.release(d.all[0])
		d.all = append(d.all[:0], d.all[1:]...)
		d.dropped++
	}
	d.all = append(d.all, display{offset: ev.Offset, typ: ev.Type, id: ev.DisplayID, data: d.hold(ev.Data)})
}

// update replaces what the displays with an id show, of a widget its text. If none was shown before
// the first event of this view, the update appears as a separate output.
func (d *displays) update(ev contract.Event) {
	found, isView := false, ev.Type == contract.EventWidgetView
	for i := range d.all {
		each := &d.all[i]
		if ev.DisplayID == "" || each.id != ev.DisplayID {
			continue
		}
		d.release(*each)
		data := ev.Data
		if isView {
			data, each.widget = maps.Clone(each.data), true
			data["text/plain"] = ev.Data["text/plain"]
		}
		each.data, found = d.hold(data), true
	}
	if !found {
		ev.Type = contract.EventDisplayData
		d.add(ev)
		d.all[len(d.all)-1].widget = isView
	}
}

// pageFull reports whether one more output would drop one of a page.
func (d *displays) pageFull() bool { return len(d.all) >= maxOutputs }

// result returns the index of the last execute_result, or -1.
func (d *displays) result() int {
	for i, each := range slices.Backward(d.all) {
		if each.typ == contract.EventExecuteResult {
			return i
		}
	}
	return -1
}

// pictures returns the index of the first of the newest MaxPictures displays with a picture, which are
// shown, and how many earlier ones there are.
func (d *displays) pictures() (from, earlier int) {
	found := 0
	for i, each := range slices.Backward(d.all) {
		if each.data["image/png"] == nil && each.data["image/jpeg"] == nil {
			continue
		}
		if found++; found == MaxPictures {
			from = i
		}
	}
	return from, max(0, found-MaxPictures)
}

func runes(s string) int { return utf8.RuneCountInString(s) }

// clipLine bounds a text on one line of a result.
func clipLine(s string, most int) string {
	s, _ = Clip(s, most)
	return s
}

// Bounds of what hostile or faulty code can make the laptop read and keep.
const (
	maxPayload = 64 << 20  // bytes of one payload
	maxSaved   = 256 << 20 // bytes of all payloads of a view; an executor keeps no more blobs of an execution
	maxMIME    = 20        // payloads of one output; Jupyter's richest have six
	maxText    = 1 << 20   // bytes of a text that is shown or shortened; of a longer one, both ends
)

// Output is one display_data or execute_result.
type Output struct {
	Offset    int64    `json:"offset"` // its event's offset
	Type      string   `json:"type"`   // display_data or execute_result
	MIMETypes []string `json:"mime_types,omitzero"`
	Text      string   `json:"text"`             // its text/plain form, shortened; empty when it is the result field's
	Path      string   `json:"path,omitempty"`   // where the original was saved on the relay's machine
	Pixels    string   `json:"pixels,omitempty"` // see File
}

// presenter turns displays into Outputs, Pictures and Files of a view.
type presenter struct {
	*Collector
	fetch  output.Fetch
	view   *View
	read   int64 // bytes of payloads so far
	toShow []*original
}

// present renders the outputs in order. Only the newest pictures are shown and decoded.
func (p *presenter) present(ctx context.Context) {
	d := &p.displays
	first := max(0, len(d.all)-p.listed())
	if earlier := first + d.dropped; earlier > 0 {
		note := fmt.Sprintf("earlier display outputs that are not listed here: %d", earlier)
		if !p.opt.Unpaged {
			note += "; get_execution pages through them"
		}
		p.note("%s", note)
	}
	if d.noRoom > 0 {
		p.note("display outputs dropped because other calls hold too many at this moment; get_execution shows them: %d", d.noRoom)
	}
	result := d.result()
	shown, earlier := d.pictures()
	if earlier > 0 {
		p.note("earlier pictures that are saved but not shown: %d", earlier)
	}
	for i := range d.all {
		if i == first { // the earlier ones are saved, but not listed
			p.view.Outputs, p.view.Files = nil, nil
		}
		out := p.output(ctx, &d.all[i], i >= shown)
		if i == result {
			p.view.Result, p.view.HasResult = p.plain(ctx, &d.all[i]), true
		} else if text := p.plain(ctx, &d.all[i]); d.all[i].widget && text == "" { // it is closed
			continue
		} else if d.all[i].widget {
			out.MIMETypes, out.Text = []string{"text/plain"}, p.fit("output", text, p.opt.Limit/2)
		} else {
			out.Text, _ = Clip(text, textRunes)
		}
		p.view.Outputs = append(p.view.Outputs, out)
	}
	p.pictures(ctx)
}

// pictures adds the pictures that are to be shown. It begins when all payloads are here: what
// it waits for must not wait for an executor.
func (p *presenter) pictures(ctx context.Context) {
	if p.opt.Holding != nil && len(p.toShow) > 0 {
		if err := p.opt.Holding.Take(ctx, memory.Answering); err != nil {
			p.note("pictures that are saved but not shown, because the call ended before their turn: %d", len(p.toShow))
			for _, o := range p.toShow {
				o.discard()
			}
			return
		}
	}
	for _, o := range p.toShow {
		pic, err := o.shrink(ctx)
		o.discard()
		if err != nil {
			p.note("the picture at offset %d is not shown: %v", o.offset, err)
			continue
		}
		p.view.Pictures = append(p.view.Pictures, pic)
	}
}

// thin bounds the total text of all outputs.
func (p *presenter) thin(left int) {
	for i := range p.view.Outputs {
		out := &p.view.Outputs[i]
		if left -= runes(out.Text); left < 0 {
			out.Text = "[…]"
		}
	}
}

func (p *presenter) note(format string, args ...any) {
	p.view.Notes = append(p.view.Notes, fmt.Sprintf(format, args...))
}

// output saves payloads that are not text, and adds the picture if it is to be shown.
func (p *presenter) output(ctx context.Context, d *display, shown bool) Output {
	out := Output{Offset: d.offset, Type: string(d.typ), MIMETypes: slices.Sorted(maps.Keys(d.data))}
	if n := len(out.MIMETypes) - maxMIME; n > 0 {
		p.note("further MIME types of the output at offset %d are omitted: %d", d.offset, n)
		out.MIMETypes = out.MIMETypes[:maxMIME]
	}
	for _, mime := range out.MIMETypes {
		_, isBlob := output.BlobOf(d.data[mime])
		if !strings.HasPrefix(mime, "image/") && !isBlob {
			continue
		}
		show := shown && isPicture(mime)
		o, err := p.original(ctx, d, mime, show)
		if err != nil {
			p.note("the %s output at offset %d could not be read: %v", plain.Word(clipLine(mime, leastRunes)), d.offset, err)
			continue
		}
		if out.Path == "" || strings.HasPrefix(mime, "image/") {
			out.Path, out.Pixels = o.path, o.pixels
		}
		if show {
			p.toShow = append(p.toShow, o)
			shown = false // one picture of an output is enough
		}
	}
	return out
}

// isPicture reports whether a model accepts pictures of this type.
func isPicture(mime string) bool { return mime == "image/png" || mime == "image/jpeg" }

// plain returns the output's text/plain form, or a placeholder with the error. Of a long one it
// is head and tail.
func (p *presenter) plain(ctx context.Context, d *display) string {
	raw, ok := d.data["text/plain"]
	if !ok {
		return ""
	}
	b := newEnds()
	if err := p.payload(ctx, "text/plain", raw, b); err != nil {
		return fmt.Sprintf("[text not read: %v]", err)
	}
	return Plain(b.text())
}

// payload writes the decoded payload of one MIME type to w.
func (p *presenter) payload(ctx context.Context, mime string, raw json.RawMessage, w io.Writer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	size := output.PayloadBytes(raw)
	switch {
	case size < 0 || size > maxPayload:
		return errors.New("payload is larger than 64 MiB")
	case p.read+size > maxSaved:
		return errors.New("more than 256 MiB of outputs were read already")
	}
	counted := &output.AtMost{To: w, Left: size}
	err := output.WritePayload(ctx, mime, raw, p.fetch, counted)
	p.read += size - max(counted.Left, 0)
	return err
}

// ends keeps the first and the last half of maxText of what is written to it.
type ends struct {
	head bounded.Buffer
	tail bounded.Tail
}

func newEnds() *ends {
	return &ends{bounded.Buffer{Max: maxText / 2}, bounded.Tail{Max: maxText / 2}}
}

func (e *ends) Write(b []byte) (int, error) {
	room := min(len(b), int(e.head.Max)-len(e.head.Bytes()))
	_, _ = e.head.Write(b[:room])
	_, _ = e.tail.Write(b[room:])
	return len(b), nil
}

func (e *ends) text() string {
	middle := ""
	if e.tail.Dropped() {
		middle = lacksMiddle
	}
	return string(e.head.Bytes()) + middle + e.tail.String()
}
