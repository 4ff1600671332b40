package render

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/output"
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
// contract.InlineMIMEBytes as references, and no event over contract.MaxEventBytes: longer
// payloads are dropped. What calls hold together is bounded (memory.Displays).
type displays struct {
	all     []display
	dropped int
	tooLong int
	noRoom  int   // whose payloads were dropped because other calls hold too much
	held    int64 // bytes of payloads
	taken   int64 // of the budget
}

// inline returns what is kept of an event's payloads: none if they exceed
// contract.MaxEventBytes.
func (d *displays) inline(data map[string]json.RawMessage) map[string]json.RawMessage {
	if sizeOf(data) > contract.MaxEventBytes {
		d.tooLong++
		return map[string]json.RawMessage{}
	}
	kept := make(map[string]json.RawMessage, len(data))
	for mime, payload := range data {
		if _, isBlob := output.BlobOf(payload); !isBlob && mime != "text/plain" && !strings.HasPrefix(mime, "image/") {
			payload = nil // only its type is shown
		}
		kept[mime] = payload
	}
	return kept
}

// hold counts the payloads of one more display. It returns none if there is no room for them.
func (d *displays) hold(data map[string]json.RawMessage) map[string]json.RawMessage {
	data = d.inline(data)
	size := sizeOf(data)
	if more := d.held + size - memory.FreeDisplays - d.taken; more > 0 {
		if !memory.Displays.Take(more) {
			d.noRoom++
			return map[string]json.RawMessage{}
		}
		d.taken += more
	}
	d.held += size
	return data
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
		d.held -= sizeOf(each.data)
	}
	if less := d.taken - max(0, d.held-memory.FreeDisplays); less > 0 {
		memory.Displays.Return(less)
		d.taken -= less
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
