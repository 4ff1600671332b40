package output

import "strings"

// fold returns a text with each line in the state that carriage returns leave it in, so that a
// progress bar is one line. Colours stay.
func fold(text string) string {
	if !strings.Contains(text, "\r") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, isLine := strings.CutSuffix(line, "\n")
		b.WriteString(foldLine(body))
		if isLine {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// foldLine returns what a line shows after each of its parts was printed over the ones before.
// Where escape sequences make columns unknown, a part replaces the line. It takes time in
// proportion to the line, however many parts that has.
func foldLine(line string) string {
	if !strings.Contains(line, "\r") {
		return line
	}
	var shown []rune
	coloured := false
	for part := range strings.SplitSeq(line, "\r") {
		if part == "" {
			continue
		}
		runes, colours := []rune(part), strings.ContainsRune(part, '\x1b')
		if colours || coloured || len(runes) >= len(shown) {
			shown, coloured = runes, colours
			continue
		}
		copy(shown, runes)
	}
	return string(shown)
}
