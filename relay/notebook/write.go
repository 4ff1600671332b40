package notebook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The version of the format that Write writes. Since 4.5, each cell has an id.
const (
	major = 4
	minor = 5
)

// Notebook is a notebook for Python that is to be written.
type Notebook struct {
	Cells []Cell
}

// Cell is a code cell with its outputs.
type Cell struct {
	// Seed determines the cell's id: equal notebooks have equal ids.
	Seed           string
	Source         string
	ExecutionCount int // the kernel's In[n]; 0 for none
	Outputs        []*Output
}

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

	// Data is a MIME bundle: text as a string, base64 for pictures, and any JSON for JSON
	// types.
	Data           map[string]any
	Metadata       map[string]any
	ExecutionCount int // ExecuteResult

	EName     string
	EValue    string
	Traceback []string
}

// Write writes the notebook as nbformat itself does: keys in order, one space of indentation,
// texts as lists of lines.
func (n Notebook) Write(w io.Writer) error {
	cells, taken := []any{}, map[string]bool{}
	for _, c := range n.Cells {
		cells = append(cells, c.object(taken))
	}
	text, err := marshal(map[string]any{
		"cells":          cells,
		"nbformat":       major,
		"nbformat_minor": minor,
		"metadata": map[string]any{
			"kernelspec":    map[string]any{"display_name": "Python 3", "language": "python", "name": "python3"},
			"language_info": map[string]any{"name": "python"},
		},
	})
	if err != nil {
		return fmt.Errorf("writing a notebook: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// marshal returns v as JSON with a line break. Unlike json.Marshal it writes <, > and & as they
// are, as Python does.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(v)
	return b.Bytes(), err
}

func (c Cell) object(taken map[string]bool) map[string]any {
	outputs := []any{}
	for _, o := range c.Outputs {
		outputs = append(outputs, o.object())
	}
	return map[string]any{
		"cell_type": "code", "id": newID(c.Seed, taken), "metadata": map[string]any{},
		"source": splitLines(c.Source), "execution_count": count(c.ExecutionCount), "outputs": outputs,
	}
}

// newID returns an id of eight hexadecimal digits that is not taken yet.
func newID(seed string, taken map[string]bool) string {
	for {
		sum := sha256.Sum256([]byte(seed))
		id := hex.EncodeToString(sum[:4])
		if !taken[id] {
			taken[id] = true
			return id
		}
		seed += "+"
	}
}

func (o *Output) object() map[string]any {
	object := map[string]any{"output_type": string(o.Type)}
	switch o.Type {
	case Stream:
		object["name"], object["text"] = o.Name, splitLines(o.Text)
	case Error:
		traceback := []string{}
		for _, text := range o.Traceback {
			traceback = append(traceback, validText(text))
		}
		object["ename"], object["evalue"], object["traceback"] = validText(o.EName), validText(o.EValue), traceback
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
			payload = splitLines(text)
		}
		written[mime] = payload
	}
	return written
}

// isLines reports whether nbformat writes a payload of this type as a list of lines.
func isLines(mime string) bool {
	return strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" || mime == "application/javascript"
}

// IsJSON reports whether a payload of this type is JSON and not a text.
func IsJSON(mime string) bool {
	return mime == "application/json" || strings.HasPrefix(mime, "application/") && strings.HasSuffix(mime, "+json")
}

func count(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

// lineBreaks are the characters after which Python's str.splitlines ends a line.
const lineBreaks = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// splitLines splits a text as Python's str.splitlines(keepends=True).
func splitLines(text string) []string {
	lines := []string{}
	text = validText(text)
	for len(text) > 0 {
		at := strings.IndexAny(text, lineBreaks)
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

// validText returns text with a replacement for each sequence of bytes that is not UTF-8.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
