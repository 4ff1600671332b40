package notebook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"colabrelay/relay/plain"
	"colabrelay/shared/lazy"
)

// Loss says what a cell would lose that readers of it were not shown, if content replaced its
// whole source; it is empty if that is nothing. Content must have the same characters that are not
// shown, in the same order, and no mark of omitted lines.
func Loss(source, content string) string {
	if mark := omission().FindString(content); mark != "" && !strings.Contains(source, mark) {
		return fmt.Sprintf("the new source has the line %q of a source that was not shown whole, so it would lose the omitted lines", mark)
	}
	hidden := unshown(source)
	if len(hidden) == 0 || slices.Equal(hidden, unshown(content)) {
		return ""
	}
	return fmt.Sprintf("the cell has characters that are not shown to readers (%s), and the new source would lose or move them", codePoints(hidden))
}

// omission matches the mark of render.Clip.
var omission = lazy.Regexp(`(?m)^\[… [0-9]+ characters omitted …\]$`)

// Unshown names the characters of a source that are not shown to readers, as a list in words; it is
// empty if there are none.
func Unshown(source string) string { return codePoints(unshown(source)) }

// unshown returns the characters of a source that are not shown, in their order.
func unshown(source string) []rune { return plain.Unshown(lineFeeds(source)) }

// maxCodePoints bounds how many different characters a message names.
const maxCodePoints = 5

// codePoints names characters, each once.
func codePoints(all []rune) string {
	var names []string
	for _, r := range all {
		if name := fmt.Sprintf("U+%04X", r); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) > maxCodePoints {
			names[maxCodePoints] = "…"
			break
		}
	}
	return strings.Join(names, ", ")
}

// WithLineEnds returns a text with the ends of lines that all lines of the source have: carriage
// returns before line feeds are not shown.
func WithLineEnds(source, text string) string {
	if lineFeeds(source) == source {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

// lineFeeds returns a source whose lines all end in a carriage return and a line feed with line
// feeds alone, as readers get it. It returns any other source unchanged.
func lineFeeds(source string) string {
	if n := strings.Count(source, "\n"); n == 0 || strings.Count(source, "\r\n") != n {
		return source
	}
	return strings.ReplaceAll(source, "\r\n", "\n")
}

// Bounds of a diff.
const (
	maxDiffed  = 256 << 10 // bytes of both sources together; longer ones are only counted
	diffAround = 3         // unchanged lines around a change
	DiffRunes  = 6_000     // of its text, as far as it is shown
)

// SourceDiff returns a unified diff of two sources; it is empty if they are equal. Whoever shows it
// clips it to DiffRunes.
func SourceDiff(from, to, before, after string) string {
	if before == after {
		return ""
	}
	if len(before)+len(after) > maxDiffed {
		return fmt.Sprintf("--- %s\n+++ %s\n[too long for a diff: %d bytes before, %d bytes after]\n", from, to, len(before), len(after))
	}
	// Sources do not end in a line break, which a diff would remark on.
	before, after = lineEnded(before), lineEnded(after)
	text, err := udiff.ToUnified(from, to, before, udiff.Lines(before, after), diffAround)
	if err != nil {
		return fmt.Sprintf("[no diff: %v]\n", err)
	}
	return text
}

func lineEnded(source string) string {
	if source == "" {
		return ""
	}
	return source + "\n"
}
