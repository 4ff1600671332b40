package tools

import (
	"fmt"
	"strings"

	"colabrelay/relay/notebook"
)

// newSource returns a cell's source with content in place of find, or content if there is no
// find.
func newSource(source, find, content string) (string, error) {
	content = notebook.WithLineEnds(source, content)
	if find != "" {
		return replaced(source, notebook.WithLineEnds(source, find), content)
	}
	if loss := notebook.Loss(source, content); loss != "" {
		return "", &Problem{
			Code: codeBadRequest, Message: "bad arguments: " + loss,
			Hint: "Change parts of the source with find, which keeps the rest, or delete the cell and add a new one if nothing of it is needed.",
		}
	}
	return content, nil
}

// replaced returns a source with content in place of find, which must occur once.
func replaced(source, find, content string) (string, error) {
	at := strings.Index(source, find)
	if at >= 0 && at == strings.LastIndex(source, find) {
		return source[:at] + content + source[at+len(find):], nil
	}
	p := &Problem{Code: codeBadRequest, Message: "bad arguments: find occurs more than once in the cell's source", Hint: "Make find longer, so that it occurs once, or omit it and give the whole source as content."}
	if at < 0 {
		p.Message = "bad arguments: find does not occur in the cell's source"
		p.Hint = "Read the cell with get_cells and cellId, and copy find from there exactly, spaces and line breaks included. Or omit find and give the whole source as content."
		if hidden := notebook.Unshown(source); hidden != "" {
			p.Hint = fmt.Sprintf("Read the cell with get_cells and cellId, and copy find from there exactly, spaces and line breaks included. The source also has characters that are not shown (%s): choose a part without them.", hidden)
		}
	}
	return "", p
}
