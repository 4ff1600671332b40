package parameters

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// pythonString returns text as papermill writes a string: printable ASCII as it is, everything
// else as escapes. Half of a surrogate pair, which JSON can name, is a code unit of units.
func pythonString(units []rune) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range units {
		switch {
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\\' || r == '"':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// pythonFloat returns f as Python prints it: the shortest digits that read back as f, with an
// exponent below 1e-4 and from 1e16.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "float('nan')"
	case math.IsInf(f, 1):
		return "float('inf')"
	case math.IsInf(f, -1):
		return "float('-inf')"
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(text, "e")
	if n, _ := strconv.Atoi(exponent); n < -4 || n >= 16 {
		return text // Go also writes at least two digits
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
