package bridge

import (
	"encoding/json"
	"fmt"
	"strings"

	"colabrelay/relay/plain"
)

// Bounds of what is read of a tab. Beyond them a bridge ends.
const (
	maxOutputBytes = 1 << 20 // of a cell's outputs; ours print less than 10 KiB
	maxShownRunes  = 500     // of a text of the page in an error
)

// output is what is used of an nbformat output. text is a string or a list of strings.
type output struct {
	Type   string          `json:"output_type"`
	Text   json.RawMessage `json:"text"`
	EName  string          `json:"ename"`
	EValue string          `json:"evalue"`
}

// outputText returns what a cell printed and its exception. It fails for outputs that no cell
// of a bridge produces: too many bytes, or not nbformat's form.
func outputText(outputs json.RawMessage) (string, error) {
	if len(outputs) > maxOutputBytes {
		return "", fmt.Errorf("%w: the page showed %d bytes of outputs for its cell, more than %d", ErrCell, len(outputs), maxOutputBytes)
	}
	if len(outputs) == 0 {
		return "", nil
	}
	var list []output
	if err := json.Unmarshal(outputs, &list); err != nil {
		return "", fmt.Errorf("%w: the page showed outputs for its cell that are not in nbformat's form", ErrCell)
	}
	var text strings.Builder
	for _, o := range list {
		switch o.Type {
		case "stream":
			text.WriteString(joined(o.Text))
		case "error":
			fmt.Fprintf(&text, "\n%s: %s\n", o.EName, o.EValue)
		}
	}
	return text.String(), nil
}

// joined returns a multiline string of nbformat; empty for anything else.
func joined(text json.RawMessage) string {
	var one string
	if json.Unmarshal(text, &one) == nil {
		return one
	}
	var lines []string
	_ = json.Unmarshal(text, &lines) // leaves it empty
	return strings.Join(lines, "")
}

// shown returns a text of the page or of a cell for an error: one line, bounded, safe.
func shown(text string) string {
	runes := []rune(plain.Line(strings.TrimSpace(text)))
	if len(runes) > maxShownRunes {
		return string(runes[:maxShownRunes-1]) + "…"
	}
	return string(runes)
}
