package output

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// WritePayload writes the decoded payload of one MIME type of an event to w. fetch reads a
// payload that is a blob.
func WritePayload(ctx context.Context, mime string, raw json.RawMessage, fetch Fetch, w io.Writer) error {
	if blob, ok := BlobOf(raw); ok {
		return fetch(ctx, blob, w)
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, decoded(mime, raw), make([]byte, 32<<10))
	return err
}

// decoded returns a reader of an inline payload. It decodes base64 as it is read: a notebook has
// payloads of many megabytes.
func decoded(mime string, raw json.RawMessage) io.Reader {
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

// Inline is the decoded payload of an output that is no blob, to be read as a file.
type Inline struct {
	mime string
	raw  json.RawMessage
	r    io.Reader
}

// NewInline returns the payload of one MIME type.
func NewInline(mime string, raw json.RawMessage) *Inline {
	return &Inline{mime, raw, decoded(mime, raw)}
}

// Read implements io.Reader.
func (p *Inline) Read(b []byte) (int, error) { return p.r.Read(b) }

// Seek implements io.Seeker for the beginning and the end. To find the end, it reads everything.
func (p *Inline) Seek(_ int64, whence int) (size int64, err error) {
	if p.r = decoded(p.mime, p.raw); whence == io.SeekEnd {
		size, err = io.Copy(io.Discard, p.r)
	}
	return size, err
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

// OfRelay reports whether an event is a report of the relay's own code in the kernel.
func OfRelay(ev contract.Event) bool {
	for mime := range ev.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
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
