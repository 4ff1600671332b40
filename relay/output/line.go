package output

import (
	"strings"
	"unicode/utf8"
)

// maxLine bounds the bytes of a line on which carriage returns work. A longer one is taken in
// pieces of that size, each as a line of its own.
const maxLine = 64 << 10

// line is the last line of a stream, which is not complete. It makes a progress bar one line:
// what follows a carriage return is printed over what there is. Colours stay. The result does
// not depend on the pieces in which the text arrives.
type line struct {
	shown    []rune // what the parts before the last carriage return left
	coloured bool   // shown has escape sequences
	part     []byte // since the last carriage return
}

// write adds text, and calls emit with each line that it completes. emit must not keep its
// argument.
func (l *line) write(text string, emit func([]byte)) {
	for len(text) > 0 {
		at := strings.IndexAny(text, "\r\n")
		if at < 0 {
			l.extend(text, emit)
			return
		}
		l.extend(text[:at], emit)
		if text[at] == '\r' {
			l.overlay()
		} else {
			l.part = append(l.text(), '\n')
			l.shown = nil
			l.flush(emit)
		}
		text = text[at+1:]
	}
}

// extend adds text without line breaks or carriage returns to the part.
func (l *line) extend(text string, emit func([]byte)) {
	for len(l.part)+len(text) > maxLine {
		fits := maxLine - len(l.part)
		for fits > 0 && !utf8.RuneStart(text[fits]) {
			fits--
		}
		l.part = append(l.part, text[:fits]...)
		text = text[fits:]
		l.flush(emit)
	}
	l.part = append(l.part, text...)
}

// flush emits the line as far as it goes, and starts a new one.
func (l *line) flush(emit func([]byte)) {
	emit(l.text())
	*l = line{part: l.part[:0]}
}

// overlay prints the part over what there is. Where escape sequences make columns unknown, it
// replaces that. It takes time in proportion to the part, however long the line is.
func (l *line) overlay() {
	if len(l.part) == 0 {
		return
	}
	runes, colours := []rune(string(l.part)), strings.ContainsRune(string(l.part), '\x1b')
	l.part = l.part[:0]
	if colours || l.coloured || len(runes) >= len(l.shown) {
		l.shown, l.coloured = runes, colours
		return
	}
	copy(l.shown, runes)
}

// text returns what the line shows now. It is valid until the next write.
func (l *line) text() []byte {
	if len(l.shown) == 0 {
		return l.part
	}
	now := line{shown: append([]rune(nil), l.shown...), coloured: l.coloured, part: append([]byte(nil), l.part...)}
	now.overlay()
	return []byte(string(now.shown))
}
