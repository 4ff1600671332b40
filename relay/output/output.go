package output

import (
	"slices"
	"strings"
)

// OutputType is the kind of an output, as nbformat names it.
type OutputType string

// Output types.
const (
	Stream        OutputType = "stream"
	DisplayData   OutputType = "display_data"
	ExecuteResult OutputType = "execute_result"
	Error         OutputType = "error"
)

// Output is one output of a cell. Type determines which fields are written.
type Output struct {
	Type OutputType
	Name string // Stream: stdout or stderr
	Text string // Stream

	// Data is a MIME bundle: text as a string, base64 for pictures, and JSON for JSON types.
	Data           map[string]any
	Metadata       JSON // an object; nil for none
	ExecutionCount int  // ExecuteResult

	EName     string
	EValue    string
	Traceback []string
}

// Object returns the output as a notebook has it: exactly the keys of nbformat's schema, texts
// as lists of lines.
func (o *Output) Object() map[string]any {
	object := map[string]any{"output_type": string(o.Type)}
	switch o.Type {
	case Stream:
		object["name"], object["text"] = o.Name, SplitLines(o.Text)
	case Error:
		traceback := []string{}
		for _, text := range o.Traceback {
			traceback = append(traceback, ValidText(text))
		}
		object["ename"], object["evalue"], object["traceback"] = ValidText(o.EName), ValidText(o.EValue), traceback
	case ExecuteResult, DisplayData:
		object["data"], object["metadata"] = bundle(o.Data), map[string]any{}
		if o.Metadata != nil {
			object["metadata"] = o.Metadata
		}
		if o.Type == ExecuteResult {
			object["execution_count"] = count(o.ExecutionCount)
		}
	}
	return object
}

func bundle(data map[string]any) map[string]any {
	written := map[string]any{}
	for mime, payload := range data {
		if text, ok := payload.(string); ok && isLines(mime) {
			payload = SplitLines(text)
		}
		written[mime] = payload
	}
	return written
}

// isLines reports whether nbformat writes a payload of this type as a list of lines.
func isLines(mime string) bool {
	return strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" || mime == "application/javascript"
}

// isJSON reports whether a payload of this type is JSON and not a text.
func isJSON(mime string) bool {
	return mime == "application/json" || strings.HasPrefix(mime, "application/") && strings.HasSuffix(mime, "+json")
}

// count returns an execution count as nbformat allows it.
func count(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// LineBreaks are the characters after which Python's str.splitlines ends a line.
const LineBreaks = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// SplitLines splits a text as Python's str.splitlines(keepends=True).
func SplitLines(text string) []string {
	lines := []string{}
	text = ValidText(text)
	for len(text) > 0 {
		at := strings.IndexAny(text, LineBreaks)
		if at < 0 {
			return append(lines, text)
		}
		end := at + 1
		switch {
		case strings.HasPrefix(text[at:], "\r\n"), text[at] == 0xc2: // U+0085 has two bytes
			end = at + 2
		case text[at] == 0xe2:
			end = at + 3
		}
		lines = append(lines, text[:end])
		text = text[end:]
	}
	return lines
}

// ValidText returns text with a replacement for each sequence of bytes that is not UTF-8.
func ValidText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// IsBase64 reports whether payloads of this type are written as base64. SVG is text.
func IsBase64(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return mime != "image/svg+xml" && slices.Contains([]string{"image", "audio", "video"}, kind) || mime == "application/pdf"
}
