package output

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// content is what a display shows. Displays of the same id share it.
type content struct {
	payloads []*payload // smallest first
	lost     []string   // MIME types that are too large
	metadata JSON
	size     int64
	id       string // of the displays
	users    int    // displays that show it
}

// payload is one entry of a MIME bundle.
type payload struct {
	mime  string
	size  int64           // in the notebook
	raw   json.RawMessage // until it is read
	blob  *contract.Blob  // of a payload outside its event
	ready bool            // value or err is there
	value any
	err   error
}

// newContent returns the content that an event describes, without payloads over a limit.
func newContent(ev *contract.Event, most int64) *content {
	c := &content{id: ev.DisplayID}
	if len(ev.Metadata) <= maxMetadata {
		c.metadata, c.size = object(ev.Metadata), sizeOf("application/json", int64(len(ev.Metadata)))
	}
	for mime, raw := range ev.Data {
		p := &payload{mime: strings.ToValidUTF8(mime, "?"), raw: raw, size: int64(len(raw))}
		length := p.size
		if blob, ok := BlobOf(raw); ok {
			p.blob, length = &blob, blob.Bytes
			p.size = max(minBlob, sizeOf(p.mime, length))
		} else if isJSON(p.mime) {
			p.size = sizeOf(p.mime, length)
		}
		if length < 0 || length > most || p.blob == nil && length > contract.MaxEventBytes {
			c.lost = append(c.lost, p.mime)
			continue
		}
		p.size += int64(len(mime))
		c.payloads = append(c.payloads, p)
		c.size += p.size
	}
	slices.SortFunc(c.payloads, func(a, b *payload) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.mime, b.mime)) })
	return c
}

// sizeOf returns about how long a payload of so many bytes is in a notebook.
func sizeOf(mime string, length int64) int64 {
	switch {
	case IsBase64(mime):
		length = (length + 2) / 3 * 4
	case isJSON(mime) && length <= maxLaidOut:
		length *= layout
	}
	return length
}

// within returns as much of the content as has a size, the smallest payloads first, without
// metadata.
func (c *content) within(room int64) *content {
	less := &content{id: c.id, lost: slices.Clone(c.lost)}
	for _, p := range c.payloads {
		if less.size+p.size > room {
			less.lost = append(less.lost, p.mime)
			continue
		}
		less.payloads = append(less.payloads, p)
		less.size += p.size
	}
	return less
}

// bundle returns the payloads that there are. The others are named in text/plain.
func (c *content) bundle() map[string]any {
	data := map[string]any{}
	lost := slices.Clone(c.lost)
	for _, p := range c.payloads {
		if p.blob == nil && !p.ready {
			p.value, p.err = inline(p.mime, p.raw)
			p.raw, p.ready = nil, true
		}
		if !p.ready || p.err != nil {
			lost = append(lost, p.mime)
			continue
		}
		data[p.mime] = p.value
	}
	if slices.Sort(lost); len(lost) > 0 {
		text, _ := data["text/plain"].(string)
		data["text/plain"] = strings.TrimPrefix(text+"\n", "\n") + "[not kept: " + strings.Join(lost, ", ") + "]"
	}
	return data
}

// inline returns a payload that is in its event.
func inline(mime string, raw json.RawMessage) (any, error) {
	if isJSON(mime) {
		return ParseJSON(raw)
	}
	return ValidText(Text(raw)), nil
}

// missing reports whether a payload is still to be requested.
func (p *payload) missing() bool { return p.blob != nil && !p.ready }

func (c *content) missing() bool { return slices.ContainsFunc(c.payloads, (*payload).missing) }

// fetchAll requests the payloads that displays show and that are not here. Those of displays that
// were replaced are requested by nobody.
func (c *Cell) fetchAll(ctx context.Context, fetch Fetch) {
	mu := &c.collector.mu
	mu.Lock()
	defer mu.Unlock()
	for _, shown := range c.fresh {
		for _, p := range shown.payloads {
			if shown.users == 0 || !p.missing() || fetch == nil || ctx.Err() != nil {
				continue
			}
			mu.Unlock()
			value, err := p.read(ctx, fetch)
			mu.Lock()
			if err == nil || ctx.Err() == nil { // else a later Add requests it again
				p.value, p.err, p.ready = value, err, true
				c.touchAll(shown)
			}
		}
	}
	c.fresh = slices.DeleteFunc(c.fresh, func(shown *content) bool {
		return shown.users == 0 || !shown.missing()
	})
}

// touchAll notes the other cells that show a content.
func (c *Cell) touchAll(shown *content) {
	for _, e := range c.collector.displays[shown.id] {
		if e.content == shown && e.cell != c {
			c.collector.touched(e.cell)
		}
	}
}

var errSize = errors.New("the payload does not have the size that its event states")

// read requests a payload. It does not change p.
func (p *payload) read(ctx context.Context, fetch Fetch) (any, error) {
	var text strings.Builder
	w, end := AtMost{&text, p.blob.Bytes}, func() error { return nil }
	if IsBase64(p.mime) {
		text.Grow(base64.StdEncoding.EncodedLen(int(p.blob.Bytes)))
		encoder := base64.NewEncoder(base64.StdEncoding, &text)
		w.To, end = encoder, encoder.Close
	} else {
		text.Grow(int(p.blob.Bytes))
	}
	if err := fetch(ctx, *p.blob, &w); err != nil {
		return nil, err
	}
	_ = end() // a strings.Builder takes everything
	switch {
	case w.Left != 0:
		return nil, errSize
	case isJSON(p.mime):
		return ParseJSON([]byte(text.String()))
	}
	return ValidText(text.String()), nil
}

// AtMost passes on what it gets, and refuses what is longer than expected.
type AtMost struct {
	To   io.Writer
	Left int64
}

// Write implements io.Writer.
func (w *AtMost) Write(b []byte) (int, error) {
	if int64(len(b)) > w.Left {
		w.Left = -1
		return 0, errSize
	}
	w.Left -= int64(len(b))
	return w.To.Write(b)
}

// JSON is a JSON value as a text without white space. As a tree of Go's values it would take up to a
// hundred times the memory: 10 MiB of [] took 1 GB.
type JSON []byte

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return j, nil }

// OneLine reports whether a notebook has the value on one line instead of a line for each value
// in it, because that would be too long.
func (j JSON) OneLine() bool {
	return len(j) > maxLaidOut || len(j) > alwaysLaidOut && laidOut(j) > layout*int64(len(j))
}

// errForm is a text that is not JSON, or nested too deeply.
var errForm = fmt.Errorf("no JSON, or nested deeper than %d", maxDepth)

// ParseJSON returns a JSON text as a value with its numbers as they are. Up to maxLaidOut bytes, the
// keys of objects are in order, as nbformat writes them: that takes many times the memory of the text.
func ParseJSON(raw []byte) (JSON, error) {
	if !json.Valid(raw) || bounded.Depth(raw) > maxDepth {
		return nil, errForm
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\ufffd"))
	}
	var b bytes.Buffer
	if len(raw) > maxLaidOut {
		err := json.Compact(&b, raw)
		return b.Bytes(), err
	}
	var value any
	from, to := json.NewDecoder(bytes.NewReader(raw)), json.NewEncoder(&b)
	from.UseNumber()
	to.SetEscapeHTML(false)
	if err := from.Decode(&value); err != nil {
		return nil, err
	}
	err := to.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// object returns raw as an object, or nil if it is none.
func object(raw json.RawMessage) JSON {
	value, err := ParseJSON(raw)
	if err != nil || value[0] != '{' {
		return nil
	}
	return value
}

// laidOut returns about how long a JSON text is if each of its values has a line.
func laidOut(raw []byte) int64 {
	const around = 8 // the levels around a payload, and a line break
	size, level := int64(len(raw)), int64(0)
	for b := range bounded.Structure(raw) {
		switch b {
		case '{', '[':
			level++
		case '}', ']':
			level--
		}
		size += around + level
	}
	return size
}

// WritePayload writes the decoded payload of one MIME type of an event to w. fetch reads a
// payload that is a blob.
func WritePayload(ctx context.Context, mime string, raw json.RawMessage, fetch Fetch, w io.Writer) error {
	if blob, ok := BlobOf(raw); ok {
		return fetch(ctx, blob, w)
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, Decoded(mime, raw), make([]byte, 32<<10))
	return err
}

// Decoded returns a reader of an inline payload. It decodes base64 as it is read: a notebook has
// payloads of many megabytes.
func Decoded(mime string, raw json.RawMessage) io.Reader {
	switch {
	case !IsBase64(mime):
		return struct{ io.Reader }{strings.NewReader(Text(raw))}
	case len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"':
		return base64.NewDecoder(base64.StdEncoding, &base64Text{rest: raw[1 : len(raw)-1]})
	}
	return base64.NewDecoder(base64.StdEncoding, &base64Text{rest: []byte(Text(raw))})
}

// base64Text reads the inside of a JSON string as base64, without the white space that kernels
// send in it because front ends accept it. It does not copy the string.
type base64Text struct{ rest []byte }

// Read implements io.Reader.
func (r *base64Text) Read(p []byte) (n int, err error) {
	for n < len(p) && len(r.rest) > 0 {
		c, used := r.rest[0], 1
		if c == '\\' && len(r.rest) > 1 {
			c, used = r.rest[1], 2
			if c == 'n' || c == 'r' || c == 't' {
				c = ' '
			}
		}
		r.rest = r.rest[used:]
		if c != ' ' && c != '\n' && c != '\r' {
			p[n] = c
			n++
		}
	}
	if n == 0 && len(r.rest) == 0 {
		err = io.EOF
	}
	return n, err
}

// PayloadBytes returns about how many bytes a payload has, as its event states.
func PayloadBytes(raw json.RawMessage) int64 {
	if blob, ok := BlobOf(raw); ok {
		return blob.Bytes
	}
	return int64(len(raw))
}

// Text returns an inline payload as text: a JSON string unquoted, a list of strings (as in
// notebook files) joined, anything else as JSON.
func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		return strings.Join(lines, "")
	}
	return string(raw)
}

// BlobOf returns the reference in a payload, if the payload is one.
func BlobOf(raw json.RawMessage) (contract.Blob, bool) {
	var ref contract.BlobRef
	if len(raw) > 300 || len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &ref) != nil {
		return contract.Blob{}, false
	}
	return ref.Blob, ref.Blob.SHA256 != ""
}

// IsBase64 reports whether payloads of this type are sent and written as base64. SVG is text.
func IsBase64(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return mime != "image/svg+xml" && slices.Contains([]string{"image", "audio", "video"}, kind) || mime == "application/pdf"
}

// Pictures are the MIME types of pictures that people are shown, best first.
var Pictures = []string{"image/png", "image/jpeg", "image/gif", "image/svg+xml"}

// Extension returns the file name extension for a MIME type.
func Extension(mime string) string {
	if strings.HasSuffix(mime, "json") {
		return ".json"
	}
	return cmp.Or(extensions[mime], ".bin")
}

var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "image/gif": ".gif", "image/webp": ".webp",
	"text/html": ".html", "text/plain": ".txt", "application/pdf": ".pdf",
}
