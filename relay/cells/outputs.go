package cells

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/widgets"
)

// Bounds of outputs that are read. They are JSON that a file or the page has checked.
const (
	maxOutputText  = 4 << 20 // bytes of a text that is shown; a longer one is only counted
	maxPicture     = 16 << 20
	maxTabOutputs  = 10_000
	maxOutputTypes = 100 // MIME types of one output
	maxListedTypes = 20
)

// outputBounds bounds what is shown of a cell's outputs.
type outputBounds struct {
	outputs  int // the first ones
	each     int // characters of one
	all      int // characters of all together
	pictures int // shown, the first ones
}

var (
	previewOutputs = outputBounds{outputs: 10, each: 500, all: 3_000}
	wholeOutputs   = outputBounds{outputs: 60, each: 12_000, all: 12_000, pictures: render.MaxPictures}
)

// Output is what is shown of an output of a cell.
type Output struct {
	Type      string   `json:"output_type"`
	Name      string   `json:"name,omitempty"` // stdout or stderr
	Text      string   `json:"text,omitempty"` // shortened
	MIMETypes []string `json:"mime_types,omitempty"`
	Picture   string   `json:"picture,omitempty"` // type and size, and whether it is shown
}

// outputReader shows outputs within bounds. It decodes no more of them than it shows: a page of
// cells may have many megabytes of pictures.
type outputReader struct {
	ctx       context.Context
	doc       *notebook.Document // has the states of widgets
	bounds    outputBounds
	left      int // characters
	largest   int // bytes of a picture that is shown
	shortened int
	pictures  []render.Picture
}

// show adds the outputs of a cell, and their pictures to the list.
func (l *lister) show(v *Cell, cell notebook.Cell, bounds outputBounds) error {
	list, err := l.outputs(l.ctx, cell)
	if err == nil && bounds.pictures > 0 { // what waits for its turn must not wait for the page
		err = l.model.Held.Take(l.ctx, memory.Answering)
	}
	if err != nil {
		return err
	}
	r := outputReader{ctx: l.ctx, doc: l.doc.Document, bounds: bounds, left: bounds.all, largest: l.model.Picture}
	r.readAll(v, list)
	l.got.Pictures = r.pictures
	return nil
}

// readAll adds the outputs of a JSON list to the cell.
func (r *outputReader) readAll(v *Cell, list json.RawMessage) {
	further := 0
	notebook.Items(list, func(output []byte) {
		if len(v.Outputs) == r.bounds.outputs {
			further++
			return
		}
		v.Outputs = append(v.Outputs, r.read(output))
	})
	if r.shortened > 0 {
		v.omit("parts of " + plain.Count(r.shortened, "output"))
	}
	if further > 0 {
		v.omit(plain.Count(further, "further output"))
	}
}

func (r *outputReader) read(output []byte) Output {
	ev := eventOf(output, maxOutputText)
	o := Output{Type: plain.Clip(string(ev.Type), 40), Name: plain.Clip(ev.Name, 40), Text: ev.Text}
	switch {
	case ev.Data != nil:
		types := slices.Sorted(maps.Keys(ev.Data))
		for _, mime := range types {
			if strings.HasPrefix(mime, "image/") && o.Picture == "" {
				o.Picture = r.picture(mime, ev.Data[mime])
			}
		}
		o.Text = r.textOf(ev.Data, types)
		for _, mime := range types[:min(len(types), maxListedTypes)] {
			o.MIMETypes = append(o.MIMETypes, plain.Clip(mime, 100))
		}
	case len(ev.Traceback) > 0:
		o.Text = strings.Join(ev.Traceback, "\n")
	case ev.EName != "":
		o.Text = strings.TrimSuffix(ev.EName+": "+ev.EValue, ": ")
	}
	short, cut := render.Clip(render.Plain(o.Text), max(100, min(r.bounds.each, r.left)))
	if cut {
		r.shortened++
	}
	r.left -= utf8.RuneCountInString(short)
	o.Text = plain.Text(short)
	return o
}

// textOf returns the text of a MIME bundle.
func (r *outputReader) textOf(data map[string]json.RawMessage, types []string) string {
	if text, ok := r.doc.WidgetText(data[widgets.ViewMIME]); ok {
		return text
	}
	for _, mime := range append([]string{"text/plain"}, types...) {
		if data[mime] != nil && strings.HasPrefix(mime, "text/") {
			return textOf(data[mime], maxOutputText)
		}
	}
	return ""
}

// picture adds a picture if the bounds allow one more, and names it.
func (r *outputReader) picture(mime string, payload []byte) string {
	name := fmt.Sprintf("%s of %s", plain.Word(plain.Clip(mime, 100)), progress.Bytes(int64(len(payload))*3/4))
	if pixels := render.Pixels(output.Decoded(mime, payload)); pixels != "" {
		name += fmt.Sprintf(", %s pixels", pixels)
	}
	switch {
	case r.bounds.pictures == 0:
		return name
	case mime != "image/png" && mime != "image/jpeg":
		return name + ", not shown: only PNG and JPEG are"
	case len(payload) > maxPicture:
		return name + ", not shown: it is too large"
	case len(r.pictures) == r.bounds.pictures:
		return name + ", not shown: earlier ones are"
	}
	shown := render.Picture{}
	original, err := io.ReadAll(output.Decoded(mime, payload))
	if err == nil {
		shown, err = render.Shrink(r.ctx, bytes.NewReader(original))
	}
	if err != nil {
		return fmt.Sprintf("%s, not shown: %v", name, err)
	}
	if len(shown.Data) > r.largest {
		return name + ", not shown: it is in the notebook"
	}
	r.pictures = append(r.pictures, shown)
	return fmt.Sprintf("%s, shown as picture %d", name, len(r.pictures))
}

// eventOf returns what an executor sends for an output of nbformat. A text of more than most bytes
// is only counted.
func eventOf(item []byte, most int) (ev contract.Event) {
	kind := ""
	texts := map[string]*string{"output_type": &kind, "name": &ev.Name, "text": &ev.Text, "ename": &ev.EName, "evalue": &ev.EValue}
	notebook.Members(item, func(key string, value []byte) {
		switch to := texts[key]; {
		case to != nil:
			*to = textOf(value, most)
		case key == "traceback" && len(value) <= most:
			_ = json.Unmarshal(value, &ev.Traceback) // of another type: the name and the message remain
		case key == "data":
			ev.Data = map[string]json.RawMessage{}
			notebook.Members(value, func(mime string, payload []byte) {
				if len(ev.Data) < maxOutputTypes {
					ev.Data[mime] = payload
				}
			})
		}
	})
	ev.Type = contract.EventType(kind)
	return ev
}

// textOf returns a text that is one string or a list of lines.
func textOf(raw []byte, most int) string {
	if len(raw) > most {
		return fmt.Sprintf("[%s of text, too long to be shown here]", progress.Bytes(int64(len(raw))))
	}
	return output.Text(raw)
}

// View shows the outputs of a cell that ran in a tab as those of an execution, and closes the
// collector. Large payloads are apart from their events, as an executor keeps them.
func View(ctx context.Context, col *render.Collector, list json.RawMessage) render.View {
	count := int64(0)
	large := map[int]func(w io.Writer) error{}
	notebook.Items(list, func(item []byte) {
		if count < maxTabOutputs {
			ev := eventOf(item, len(item))
			ev.Offset = count
			for mime, raw := range ev.Data {
				if len(raw) > contract.InlineMIMEBytes {
					ev.Data[mime], _ = json.Marshal(contract.BlobRef{Blob: contract.Blob{Number: len(large), SHA256: "-", Bytes: int64(len(raw))}})
					large[len(large)] = func(w io.Writer) error { return output.WritePayload(ctx, mime, raw, nil, w) }
				}
			}
			col.Add(ev)
		}
		count++
	})
	if count > maxTabOutputs {
		col.Add(contract.Event{Offset: maxTabOutputs, Type: contract.EventStream, Cut: plain.Count(int(count-maxTabOutputs), "further output")})
	}
	return col.View(ctx, func(_ context.Context, blob contract.Blob, w io.Writer) error {
		if write := large[blob.Number]; write != nil {
			return write(w)
		}
		return errors.New("its payload is missing") // of a payload that names another one, as only an executor's may
	})
}
