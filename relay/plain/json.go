package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

// JSON returns v as one line of JSON in which characters that a terminal would interpret or
// not show are escaped, so the decoded value is the same. indent, if not empty, spreads it
// over several lines.
func JSON(v any, indent string) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return EscapeJSON(buf.Bytes()), nil
}

// EscapeJSON returns a text of JSON with escapes in place of the characters for which the function
// JSON writes them. Outside of strings it must have no white space but spaces and line feeds.
func EscapeJSON(text []byte) []byte {
	if bytes.IndexFunc(text, func(r rune) bool { return r >= 0x7f }) < 0 { // JSON allows no other controls
		return text
	}
	out := make([]byte, 0, len(text))
	var row filename.Row
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		next, _ := utf8.DecodeRune(text[n:])
		switch {
		case r == '\n' || row.Keeps(r, next):
			out = append(out, text[:n]...)
			text = text[n:]
			continue
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text, row = text[n:], filename.Row{}
	}
	return out
}
