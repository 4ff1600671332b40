package notebook

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"colabrelay/relay/output"
)

// style is how a file writes JSON. Two styles differ only in white space and escapes.
type style struct {
	newline string // between values; empty if a value is one line
	unit    string // by which a level is indented
	comma   string // with the space after it, if a value is one line
	colon   string // with the space after it
	ascii   bool   // characters that are not ASCII are escape sequences
}

// jupyterStyle is how nbformat writes a notebook.
var jupyterStyle = style{newline: "\n", unit: " ", comma: ",", colon: ": "}

// write appends a value as Python's json does: nil, an int, string, output.JSON, list, or map with its
// keys in order. indent is the indentation of the line that it begins in.
func (st style) write(b []byte, value any, indent string) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case string:
		return st.quote(b, v), nil
	case []string:
		return writeList(st, b, v, indent)
	case []any:
		return writeList(st, b, v, indent)
	case []map[string]any:
		return writeList(st, b, v, indent)
	case output.JSON:
		if v == nil {
			return append(b, "null"...), nil
		}
		if v.OneLine() {
			return style{comma: ", ", colon: st.colon, ascii: st.ascii}.json(b, v, ""), nil
		}
		return st.json(b, v, indent), nil
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		return st.list(b, "{}", len(keys), indent, func(b []byte, i int) ([]byte, error) {
			return st.write(append(st.quote(b, keys[i]), st.colon...), v[keys[i]], indent+st.unit)
		})
	}
	return nil, fmt.Errorf("a notebook has no values of type %T", value)
}

func writeList[T any](st style, b []byte, values []T, indent string) ([]byte, error) {
	return st.list(b, "[]", len(values), indent, func(b []byte, i int) ([]byte, error) {
		return st.write(b, values[i], indent+st.unit)
	})
}

// list appends n elements between two delimiters.
func (st style) list(b []byte, delimiters string, n int, indent string, element func([]byte, int) ([]byte, error)) (_ []byte, err error) {
	if n == 0 {
		return append(b, delimiters...), nil
	}
	b = append(b, delimiters[0])
	for i := range n {
		if i > 0 {
			b = append(b, st.comma...)
		}
		if st.newline != "" {
			b = append(append(append(b, st.newline...), indent...), st.unit...)
		}
		if b, err = element(b, i); err != nil {
			return nil, err
		}
	}
	if st.newline != "" {
		b = append(append(b, st.newline...), indent...)
	}
	return append(b, delimiters[1]), nil
}

// json appends a value that is JSON already.
func (st style) json(b, text []byte, indent string) []byte {
	levels := []string{indent} // by depth
	line := func(depth int) {
		if st.newline == "" {
			return
		}
		for len(levels) <= depth {
			levels = append(levels, levels[len(levels)-1]+st.unit)
		}
		b = append(append(b, st.newline...), levels[depth]...)
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{', '[':
			b = append(b, c)
			if closing := text[i+1]; closing == c+2 { // the same kind, which is empty
				b = append(b, closing)
				i++
				continue
			}
			depth++
			line(depth)
		case '}', ']':
			depth--
			line(depth)
			b = append(b, c)
		case ',':
			b = append(b, st.comma...)
			line(depth)
		case ':':
			b = append(b, st.colon...)
		case '"':
			end := stringEnd(text, i)
			b = st.quote(b, decode(text[i:end]))
			i = end - 1
		default:
			b = append(b, c)
		}
	}
	return b
}

// quote appends a text as a string of JSON. Bytes that are not UTF-8 become U+FFFD.
func (st style) quote(b []byte, text string) []byte {
	return append(st.escape(append(b, '"'), text), '"')
}

// escape appends what stands between the quotes.
func (st style) escape(b []byte, text string) []byte {
	const short = `"\`
	for _, r := range output.ValidText(text) {
		switch {
		case strings.ContainsRune(short, r):
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = appendControl(b, r)
		case r < 0x7f || !st.ascii:
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

func appendControl(b []byte, r rune) []byte {
	if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
		return append(b, '\\', "bfnrt"[i])
	}
	return fmt.Appendf(b, `\u%04x`, r)
}
