package plain

import "strings"

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
