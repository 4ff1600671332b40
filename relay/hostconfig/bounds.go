package hostconfig

import (
	"bytes"
	"fmt"
)

// Bounds of a JSON text beside its size. The parser calls itself at each level, and Go
// ends a program whose stack outgrows its limit. Each value takes some hundred bytes.
const (
	maxDepth  = 1000
	maxValues = 1_000_000
)

// checkSize returns an error for a JSON text that is too deep or has too many values. It
// does not parse the text.
func checkSize(text []byte) error {
	depth, values := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		case '"', '/':
			i += skipped(text[i:]) - 1
		}
		if depth > maxDepth {
			return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
		}
		if values > maxValues {
			return fmt.Errorf("it has more than %d values", maxValues)
		}
	}
	return nil
}

// skipped returns the length of the string or comment at the beginning of a text, or 1.
func skipped(text []byte) int {
	end := ""
	switch {
	case text[0] == '"':
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(text)
	case bytes.HasPrefix(text, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(text, []byte("/*")):
		end = "*/"
	default:
		return 1
	}
	if i := bytes.Index(text[2:], []byte(end)); i >= 0 {
		return 2 + i + len(end)
	}
	return len(text)
}
