package output

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

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
	tries int             // how often it was requested
	ready bool            // value or err is there
	value any
	err   error
}

// newContent returns the content that an event describes, without payloads over a limit.
func newContent(ev *contract.Event, most int64) *content {
	c := &content{id: ev.DisplayID}
	if len(ev.Metadata) <= maxMetadata {
		c.metadata, c.size = object(ev.Metadata), written(ev.Metadata)
	}
	for mime, raw := range ev.Data {
		p := &payload{mime: strings.ToValidUTF8(mime, "?"), raw: raw, size: int64(len(raw)), blob: blobOf(raw)}
		length := p.size
		if p.blob != nil {
			length = p.blob.Bytes
			p.size = sizeOf(p.mime, length)
		}
		if isJSON(p.mime) && p.blob == nil {
			p.size = written(raw)
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

// sizeOf returns what a payload of so many bytes outside its event counts.
func sizeOf(mime string, length int64) int64 {
	switch {
	case IsBase64(mime):
		length = (length + 2) / 3 * 4
	case isJSON(mime) && length <= maxLaidOut:
		length *= layout
	}
	return max(minBlob, length)
}

// blobOf returns the blob that stands for a payload, or nil if the payload is in its event.
func blobOf(raw json.RawMessage) *contract.Blob {
	var ref contract.BlobRef
	if len(raw) < 300 && bytes.HasPrefix(raw, []byte("{")) && json.Unmarshal(raw, &ref) == nil && ref.Blob.SHA256 != "" {
		return &ref.Blob
	}
	return nil
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
		value, err := ParseJSON(raw)
		if err != nil {
			return nil, err
		}
		return value, nil
	}
	text, err := joinedLines(raw)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// joinedLines returns a text that is a string or, as a kernel may also send it, a list of lines.
func joinedLines(raw json.RawMessage) (text string, err error) {
	if !bytes.HasPrefix(raw, []byte("[")) {
		err = json.Unmarshal(raw, &text)
		return ValidText(text), err
	}
	var all []string
	err = json.Unmarshal(raw, &all)
	return ValidText(strings.Join(all, "")), err
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
			if p.finish(value, err, ctx.Err() != nil) {
				c.touchAll(shown)
			}
		}
	}
	c.fresh = slices.DeleteFunc(c.fresh, func(shown *content) bool {
		return shown.users == 0 || !shown.missing()
	})
}

// finish takes the result of a request, and reports whether it is the last one.
func (p *payload) finish(value any, err error, cancelled bool) bool {
	if err != nil && cancelled {
		return false
	}
	p.tries++
	p.value, p.err, p.ready = value, err, err == nil || p.tries == maxTries
	return p.ready
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
	w := exactly{left: p.blob.Bytes}
	var text strings.Builder
	if IsBase64(p.mime) {
		text.Grow(base64.StdEncoding.EncodedLen(int(p.blob.Bytes)))
		encoder := base64.NewEncoder(base64.StdEncoding, &text)
		w.to = encoder
		if err := fetch(ctx, *p.blob, &w); err != nil {
			return nil, err
		}
		_ = encoder.Close() // a strings.Builder takes everything
	} else {
		text.Grow(int(p.blob.Bytes))
		w.to = &text
		if err := fetch(ctx, *p.blob, &w); err != nil {
			return nil, err
		}
	}
	switch {
	case w.left != 0:
		return nil, errSize
	case isJSON(p.mime):
		value, err := ParseJSON([]byte(text.String()))
		if err != nil {
			return nil, err
		}
		return value, nil
	}
	return ValidText(text.String()), nil
}

// exactly passes on what it gets, and refuses what is longer than expected.
type exactly struct {
	to   io.Writer
	left int64
}

// Write implements io.Writer.
func (w *exactly) Write(b []byte) (int, error) {
	if w.left -= int64(len(b)); w.left < 0 {
		return 0, errSize
	}
	return w.to.Write(b)
}
