package tools

import (
	"fmt"

	"colabrelay/relay/notebook"
	"colabrelay/relay/render"
)

// cellName names a cell, in the only way in which answers do.
func cellName(index int, handle string) string {
	return fmt.Sprintf("cell %d (id %s)", index, inline(handle))
}

// sourceDiff is notebook.SourceDiff, with head and tail if it is long.
func sourceDiff(from, to, before, after string) string {
	text, _ := render.Clip(notebook.SourceDiff(from, to, before, after), notebook.DiffRunes)
	return text
}
