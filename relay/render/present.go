package render

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// Bounds of what hostile or faulty code can make the laptop read and keep.
const (
	maxPayload = 64 << 20  // bytes of one payload
	maxSaved   = 256 << 20 // bytes of all payloads of a view; an executor keeps no more blobs of an execution
	maxMIME    = 20        // payloads of one output; Jupyter's richest have six
)

// Output is one display_data or execute_result.
type Output struct {
	Offset    int64    `json:"offset"` // its event's offset
	Type      string   `json:"type"`   // display_data or execute_result
	MIMETypes []string `json:"mime_types,omitzero"`
	Text      string   `json:"text"`           // its text/plain form, shortened; empty when it is the result field's
	Path      string   `json:"path,omitempty"` // where the original was saved on the relay's machine
}

// presenter turns displays into Outputs, Pictures and Files of a view.
type presenter struct {
	dir     string
	fetch   Fetch
	view    *View
	listed  int // how many outputs, the newest ones, the view has
	read    int // bytes of payloads so far
	unpaged bool
}

// present renders the outputs in order. Only the newest pictures are shown and decoded.
func (p *presenter) present(ctx context.Context, d *displays) {
	first := max(0, len(d.all)-p.listed)
	if earlier := first + d.dropped; earlier > 0 {
		note := fmt.Sprintf("earlier display outputs that are not listed here: %d", earlier)
		if !p.unpaged {
			note += "; get_execution pages through them"
		}
		p.note("%s", note)
	}
	if d.tooLong > 0 {
		p.note("display outputs dropped because one message exceeds %d MiB, which no executor sends: %d", contract.MaxEventBytes>>20, d.tooLong)
	}
	result, shown := d.result(), d.pictures()
	if shown.earlier > 0 {
		p.note("earlier pictures that are saved but not shown: %d", shown.earlier)
	}
	for i := range d.all {
		if i == first { // the earlier ones are saved, but not listed
			p.view.Outputs, p.view.Files = nil, nil
		}
		out := p.output(ctx, &d.all[i], i >= shown.from)
		if i == result {
			p.view.Result, p.view.HasResult = p.plain(ctx, &d.all[i]), true
		} else {
			out.Text, _ = Clip(p.plain(ctx, &d.all[i]), textRunes)
		}
		p.view.Outputs = append(p.view.Outputs, out)
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
		_, isBlob := blobOf(d.data[mime])
		if !strings.HasPrefix(mime, "image/") && !isBlob {
			continue
		}
		payload, err := p.payload(ctx, mime, d.data[mime])
		if err != nil {
			p.note("the %s output at offset %d could not be read: %v", mime, d.offset, err)
			continue
		}
		path := p.save(d, mime, payload)
		if out.Path == "" || strings.HasPrefix(mime, "image/") {
			out.Path = path
		}
		if shown && isPicture(mime) {
			p.picture(ctx, d, payload)
			shown = false // one picture of an output is enough
		}
	}
	return out
}

// isPicture reports whether a model accepts pictures of this type.
func isPicture(mime string) bool { return mime == "image/png" || mime == "image/jpeg" }

func (p *presenter) picture(ctx context.Context, d *display, original []byte) {
	pic, err := Shrink(ctx, original)
	if err != nil {
		p.note("the picture at offset %d is not shown: %v", d.offset, err)
		return
	}
	p.view.Pictures = append(p.view.Pictures, pic)
}

// save saves the payload and returns its path, or "" if that fails.
func (p *presenter) save(d *display, mime string, payload []byte) string {
	kind := "output"
	if strings.HasPrefix(mime, "image/") {
		kind = "picture"
	}
	name := fmt.Sprintf("output-%d%s", d.offset, Extension(mime))
	if d.id != "" || kind == "output" {
		// An updated display keeps its offset, and its pictures must not overwrite each other.
		name = fmt.Sprintf("output-%d-%.4x%s", d.offset, sha256.Sum256(payload), Extension(mime))
	}
	path, err := SaveFile(p.dir, name, func(w io.Writer) error {
		_, err := w.Write(payload)
		return err
	})
	p.view.saved(kind, path, err)
	if err != nil {
		return ""
	}
	return filepath.Clean(path)
}

// plain returns the output's text/plain form, or a placeholder with the error.
func (p *presenter) plain(ctx context.Context, d *display) string {
	raw, ok := d.data["text/plain"]
	if !ok {
		return ""
	}
	payload, err := p.payload(ctx, "text/plain", raw)
	if err != nil {
		return fmt.Sprintf("[text not read: %v]", err)
	}
	return Plain(string(payload))
}

// payload returns the decoded payload of one MIME type.
func (p *presenter) payload(ctx context.Context, mime string, raw json.RawMessage) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	size := PayloadBytes(raw)
	switch {
	case size < 0 || size > maxPayload:
		return nil, errors.New("payload is larger than 64 MiB")
	case int64(p.read)+size > maxSaved:
		return nil, errors.New("more than 256 MiB of outputs were read already")
	}
	w := &bounded.Buffer{Max: size}
	err := WritePayload(ctx, mime, raw, p.fetch, w)
	if err == nil {
		p.read += len(w.Bytes())
	}
	return w.Bytes(), err
}
