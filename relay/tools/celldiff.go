package tools

import (
	"fmt"

	"github.com/aymanbagabas/go-udiff"

	"colabrelay/relay/render"
)

// Bounds of a diff.
const (
	maxDiffed  = 256 << 10 // bytes of both sources together; longer ones are only counted
	diffRunes  = 6_000     // of its text
	diffAround = 3         // unchanged lines around a change
)

// cellName names a cell in a diff.
func cellName(index int, handle string) string { return fmt.Sprintf("cell %d %s", index, handle) }

// SourceDiff returns a unified diff of two sources; it is empty if they are equal.
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
	text, _ = render.Clip(text, diffRunes)
	return text
}

func lineEnded(source string) string {
	if source == "" {
		return ""
	}
	return source + "\n"
}
