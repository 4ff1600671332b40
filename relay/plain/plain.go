// Package plain makes text from outside safe to show. Text from an executor, a tunnel, a
// file name or a host's configuration reaches a terminal or a model only through this
// package. It removes control sequences and invisible characters, and bounds the length.
//
// It knows nothing about the source of a text and never fails. Start reading at Line and
// Text. Terminal, for the output of the user's own code, is the one exception.
package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Bounds in characters (runes).
const (
	MaxLine = 2_000  // a message
	MaxName = 16_384 // a path on the VM: four for each byte that it may have
	MaxText = 40_000 // a text of several lines, such as a whole result
)

// Clip returns Line of s in at most so many characters.
func Clip(s string, most int) string { return bound(Line(s), most) }

// Line returns s on one line, at most MaxLine characters. It replaces line breaks and tabs
// by spaces, and removes escape sequences and invisible characters.
func Line(s string) string {
	return bound(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, clean(s)), MaxLine)
}

// Name returns a file name on the VM, or a path with slashes, as the executor writes it, in a
// form that every reader sees whole and that means this file alone wherever a tool or a command
// takes a path on the VM. What Line would change, a space at either end and those that are not
// the usual one are written as \xNN, byte by byte; see contract.EscapeName.
func Name(path string) string { return bound(escapedName(path, ""), MaxName) }

// QuoteName is Quote of Name. Quotation marks in the name are escaped too.
func QuoteName(path string) string {
	return "“" + bound(escapedName(path, "“”"), MaxName) + "”"
}

// WordName is Word of Name, and quotes it where Word would.
func WordName(path string) string {
	if name := Name(path); Word(name) == name {
		return name
	}
	return QuoteName(path)
}

// escapedName escapes the characters of also too.
func escapedName(path, also string) string {
	path = contract.UnescapeName(path)
	var row filename.Row
	return contract.EscapeNameAlso(path, func(at int) bool {
		r, n := utf8.DecodeRuneInString(path[at:])
		next, _ := utf8.DecodeRuneInString(path[at+n:])
		if !(r == utf8.RuneError && n == 1) && row.Keeps(r, next) && !strings.ContainsRune(also, r) && !isBlank(r) && !(r == ' ' && atEnd(path, at)) {
			return false
		}
		row = filename.Row{} // a joiner behind it is behind the escape
		return true
	})
}

// atEnd reports whether a name in the path begins or ends with the byte at an offset.
func atEnd(path string, at int) bool {
	return at == 0 || path[at-1] == '/' || at+1 == len(path) || path[at+1] == '/'
}

// isBlank reports whether r looks like a space or nothing and is another character. The wide one
// of East Asian texts does not look like it.
func isBlank(r rune) bool {
	return r != ' ' && r != '\u3000' && unicode.Is(unicode.Zs, r) || r == '\u2800'
}

// Quote returns Line of a text from outside between curly quotation marks, which it cannot
// contain itself: what looks like the end of the quotation is its end.
func Quote(s string) string {
	return "“" + strings.ReplaceAll(strings.ReplaceAll(Line(s), "“", `"`), "”", `"`) + "”"
}

// Word returns Line of a name or a short text from outside for a sentence of the relay's. One that
// could be taken for words of the relay's, because it has a character that is or looks like a
// space, is quoted.
func Word(s string) string {
	s = Line(s)
	apart := func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M) && (r > unicode.MaxASCII || r == ' ')
	}
	if s == "" || strings.ContainsFunc(s, apart) {
		return Quote(s)
	}
	return s
}

// Text returns s with its line breaks and tabs, at most MaxText characters. It removes
// escape sequences and invisible characters.
func Text(s string) string { return bound(clean(s), MaxText) }

// Document returns all of Text of s, for a file.
func Document(s string) string { return clean(s) }

// bound shortens s to max characters.
func bound(s string, max int) string {
	if len(s) <= max {
		return s
	}
	n := 0
	for i := range s {
		if n == max-1 {
			return strings.TrimRightFunc(s[:i], filename.Joiner) + "…"
		}
		n++
	}
	return s
}

// clean returns s without escape sequences and invisible characters. A character that readers
// see differently, and a byte that is not UTF-8, become U+FFFD.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	var row filename.Row
	for len(s) > 0 {
		if n, _ := sequence(s); n > 0 {
			s = s[min(n, len(s)):]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		if filename.Unknown(r) {
			r = utf8.RuneError
		}
		if keeps(&row, r, s) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// keeps reports whether r, which rest follows, is shown.
func keeps(row *filename.Row, r rune, rest string) bool {
	if r == '\n' || r == '\t' {
		*row = filename.Row{}
		return true
	}
	next := rune(0)
	if filename.Joiner(r) {
		next, _ = utf8.DecodeRuneInString(rest)
	}
	return row.Keeps(r, next)
}

// isClean saves copying ordinary text.
func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return c >= utf8.RuneSelf && utf8.ValidString(s) && allKept(s)
		}
	}
	return true
}

func allKept(s string) bool {
	var row filename.Row
	for i, r := range s {
		if !keeps(&row, r, s[i+utf8.RuneLen(r):]) {
			return false
		}
	}
	return true
}

// Unshown returns the characters of s that Text removes or replaces, in their order.
func Unshown(s string) []rune {
	var all []rune
	var row filename.Row
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if s = s[n:]; !keeps(&row, r, s) || r == utf8.RuneError && n == 1 {
			all = append(all, r)
		}
	}
	return all
}

// Count returns a number and what it counts, in the plural unless n is 1: "1 file",
// "2 files". The noun forms its plural with s.
func Count[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

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

// Rule returns the plain form of a string. A nil Rule keeps all strings below its field.
type Rule func(string) string

// Deep applies rules to every string that v, a pointer, leads to: fields, items, and the
// keys and values of maps. rules has the name of a field as key, or "" for all other
// fields. Byte slices are not changed.
func Deep(v any, rules map[string]Rule) {
	deep{rules}.walk(reflect.ValueOf(v), rules[""])
}

type deep struct{ rules map[string]Rule }

func (d deep) walk(v reflect.Value, rule Rule) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			d.indirect(v, rule)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			below, named := d.rules[field.Name]
			if !named {
				below = rule
			}
			if below != nil && (field.IsExported() || field.Anonymous) {
				d.walk(v.Field(i), below)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			d.walk(v.Index(i), rule)
		}
	case reflect.Map:
		d.table(v, rule)
	case reflect.String:
		// A plain string is not written, because others may be reading it.
		if fresh := rule(v.String()); v.CanSet() && fresh != v.String() {
			v.SetString(fresh)
		}
	}
}

// indirect walks the value that v points to. The value of an interface cannot be set, so a
// copy replaces it.
func (d deep) indirect(v reflect.Value, rule Rule) {
	if v.Kind() == reflect.Pointer {
		d.walk(v.Elem(), rule)
		return
	}
	inner := reflect.New(v.Elem().Type()).Elem()
	inner.Set(v.Elem())
	d.walk(inner, rule)
	if v.CanSet() {
		v.Set(inner)
	}
}

// table replaces a map's entries by plain ones.
func (d deep) table(v reflect.Value, rule Rule) {
	if v.IsNil() || !v.CanSet() {
		return
	}
	fresh := reflect.MakeMapWithSize(v.Type(), v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(each.Key())
		value.Set(each.Value())
		d.walk(key, rule)
		d.walk(value, rule)
		fresh.SetMapIndex(key, value)
	}
	v.Set(fresh)
}

// ShellWord quotes a word of a command that is shown, for the shell of this computer, if it needs
// that.
func ShellWord(word string) string {
	if runtime.GOOS == "windows" {
		return windowsWord(word)
	}
	return POSIXWord(word)
}

// ShellWords is ShellWord for each of the words.
func ShellWords(words []string) []string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = ShellWord(word)
	}
	return quoted
}

// POSIXWord quotes a word for a shell such as sh if it needs that.
func POSIXWord(word string) string {
	if isShellWord(word) && !strings.Contains(word, `\`) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func windowsWord(word string) string {
	if isShellWord(word) {
		return word
	}
	return `"` + word + `"`
}

func isShellWord(word string) bool {
	return word != "" && !strings.ContainsAny(word, " \t\n\"'`$&|;<>()*?[]#~!{}")
}

// maxSequence bounds an escape sequence in bytes. The beginning of a longer one counts as
// text.
const maxSequence = 4 << 10

// kind is what an escape sequence is for.
type kind int

const (
	other  kind = iota
	colour      // SGR: the look of the following text
	erase       // of the current line
	open        // incomplete at the end of s
)

// sequence returns the length of the escape sequence at the beginning of s, or 0 if there is
// none. A sequence starts with ESC and a letter, or with the equivalent C1 control.
func sequence(s string) (n int, k kind) {
	introducer, rest := introduced(s)
	if introducer == 0 {
		return 0, other
	}
	head := len(s) - len(rest)
	switch introducer {
	case 0x1b:
		return head, open // the letter is missing
	case '[':
		return control(rest, head)
	case ']', 'P', 'X', '^', '_':
		return controlString(rest, head)
	}
	if introducer >= 0x20 && introducer <= 0x2f { // such as character sets
		for i := 0; i < len(rest) && i < maxSequence; i++ {
			if rest[i] < 0x20 || rest[i] > 0x2f {
				return head + i + 1, other
			}
		}
		return unfinished(rest, head)
	}
	return head, other
}

// unfinished measures a sequence that is incomplete, or too long.
func unfinished(rest string, head int) (int, kind) {
	if len(rest) >= maxSequence {
		return head, other
	}
	return head + len(rest), open
}

// introduced returns the letter that introduces a sequence and the text after it. The
// letter is 0 if s does not begin with a sequence, and ESC if s is only an ESC.
func introduced(s string) (letter byte, rest string) {
	if s[0] == 0x1b {
		if len(s) == 1 {
			return 0x1b, ""
		}
		if s[1] < 0x20 || s[1] > 0x7e {
			return '~', s[1:] // ESC without a letter
		}
		return s[1], s[2:]
	}
	if isC1(s) {
		return s[1] - 0x40, s[2:]
	}
	return 0, s
}

// isC1 reports whether s begins with a control of U+0080 to U+009F.
func isC1(s string) bool { return len(s) > 1 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f }

// control measures a sequence of parameters and a final letter, after its head bytes.
func control(rest string, head int) (int, kind) {
	for i := 0; i < len(rest) && i < maxSequence; i++ {
		switch c := rest[i]; {
		case c >= 0x40 && c <= 0x7e:
			return head + i + 1, controlKind(rest[:i], c)
		case c < 0x20 || c > 0x7e:
			return head + i, other // interrupted by text
		}
	}
	return unfinished(rest, head)
}

func controlKind(parameters string, final byte) kind {
	switch {
	case final == 'm' && strings.Trim(parameters, "0123456789;:") == "":
		return colour
	case final == 'K' && strings.Trim(parameters, "012") == "":
		return erase
	}
	return other
}

// controlString measures a sequence that contains a text up to BEL or ST, such as a window's
// title, the clipboard or a picture.
func controlString(rest string, head int) (int, kind) {
	for i := 0; i < len(rest) && i < maxSequence; i++ {
		switch {
		case rest[i] == '\a':
			return head + i + 1, other
		case rest[i] == 0x1b && i+1 == len(rest):
			return head + len(rest), open
		case rest[i] == 0x1b && rest[i+1] == '\\':
			return head + i + 2, other
		case strings.HasPrefix(rest[i:], "\u009c"):
			return head + i + len("\u009c"), other
		case rest[i] == 0x1b, isC1(rest[i:]): // interrupted by another sequence
			return head + i, other
		}
	}
	return unfinished(rest, head)
}

// Terminal filters the output of the user's code for a terminal. It keeps colours, carriage
// returns, backspaces and line erasures, because progress bars use them. It removes
// sequences that move the cursor to another line, set a title, write to the clipboard or
// change the terminal's settings. Unlike Text it keeps characters for private use, because
// fonts of terminals have symbols there. Output to anything but a terminal needs no filter.
type Terminal struct {
	pending string // an incomplete escape sequence or character
	styled  bool   // colours or other attributes are on
	row     filename.Row
}

// Reset returns the sequence that turns off colours and other attributes, or "" if none are
// on. Print it before text that is not the code's, so that this text is readable.
func (t *Terminal) Reset() string {
	if !t.styled {
		return ""
	}
	t.styled = false
	return "\x1b[0m"
}

// Filter returns the safe part of text. It holds back an incomplete sequence or character at
// the end until the next call.
func (t *Terminal) Filter(text string) string {
	s := t.pending + text
	t.pending = ""
	var b strings.Builder
	for len(s) > 0 {
		n, k := sequence(s)
		if n == 0 {
			r, size := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && !utf8.FullRuneInString(s) || filename.Joiner(r) && !utf8.FullRuneInString(s[size:]) {
				t.pending = s // the rest of the character will follow, or what a joiner joins
				break
			}
			if r == '\b' || r == '\r' || filename.Unknown(r) || keeps(&t.row, r, s[size:]) {
				b.WriteRune(r)
			}
			s = s[size:]
			continue
		}
		switch k {
		case open:
			t.pending, s = s, ""
			continue
		case colour, erase:
			seq := s[:n]
			if isC1(seq) {
				seq = "\x1b[" + seq[2:]
			}
			b.WriteString(seq)
			t.styled = t.styled && k != colour || k == colour && seq != "\x1b[m" && seq != "\x1b[0m"
		}
		s = s[n:]
	}
	return b.String()
}
