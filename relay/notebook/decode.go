package notebook

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes are the bytes after the backslash of a short escape sequence, and unescaped what they
// stand for.
const (
	escapes   = `"\/bfnrt`
	unescaped = "\"\\/\b\f\n\r\t"
)

// decode returns the text that a JSON string stands for, which a scanner has passed. Half a
// surrogate pair becomes U+FFFD.
func decode(quoted []byte) string { return decoded(quoted, false) }

// decodeKept is decode that keeps halves of surrogate pairs.
func decodeKept(quoted []byte) string { return decoded(quoted, true) }

func decoded(quoted []byte, keep bool) string {
	inner := quoted[1 : len(quoted)-1]
	at := bytes.IndexByte(inner, '\\')
	if at < 0 {
		return string(inner)
	}
	text := make([]byte, 0, len(inner))
	for ; at >= 0; at = bytes.IndexByte(inner, '\\') {
		text, inner = append(text, inner[:at]...), inner[at:]
		r, length := unescape(inner)
		if half := unit(inner); keep && r == utf8.RuneError && utf16.IsSurrogate(half) {
			text = append(text, 0xe0|byte(half>>12), 0x80|byte(half>>6)&0xbf, 0x80|byte(half)&0xbf)
		} else {
			text = utf8.AppendRune(text, r)
		}
		inner = inner[length:]
	}
	return string(append(text, inner...))
}

// unescape returns the character that the escape sequence at the start of a text stands for, and
// the sequence's length.
func unescape(text []byte) (r rune, length int) {
	if text[1] != 'u' {
		return rune(unescaped[strings.IndexByte(escapes, text[1])]), 2
	}
	r = unit(text)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r = utf16.DecodeRune(r, unit(text[6:])); r == utf8.RuneError {
		return r, 6
	}
	return r, 12
}

// unit returns the number in the sequence \uXXXX at the start of a text; 0 if there is none.
func unit(text []byte) rune {
	if !bytes.HasPrefix(text, []byte(`\u`)) {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n)
}
