package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"colabrelay/relay/output"
)

// The version of the format that Write writes. Since 4.5, each cell has an id.
const (
	major = 4
	minor = 5
)

// Notebook is a notebook for Python that is to be written.
type Notebook struct {
	Cells   []RunCell
	Widgets map[string]output.JSON // the states of widgets that outputs show
}

// RunCell is a code cell with its outputs.
type RunCell struct {
	// Seed determines the cell's id: equal notebooks have equal ids.
	Seed           string
	Source         string
	ExecutionCount int // the kernel's In[n]; 0 for none
	Outputs        []*output.Output
}

// Write writes the notebook as nbformat itself does: keys in order, one space of indentation,
// texts as lists of lines.
func (n Notebook) Write(w io.Writer) error {
	text, err := n.text()
	if err != nil {
		return fmt.Errorf("writing a notebook: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func (n Notebook) text() ([]byte, error) {
	cells, taken := []any{}, map[string]bool{}
	for _, c := range n.Cells {
		cells = append(cells, c.object(taken))
	}
	metadata := map[string]any{
		"kernelspec":    map[string]any{"display_name": "Python 3", "language": "python", "name": "python3"},
		"language_info": map[string]any{"name": "python"},
	}
	if len(n.Widgets) > 0 {
		metadata["widgets"] = widgetMetadata(n.Widgets)
	}
	text, err := jupyterStyle.write(nil, map[string]any{
		"cells": cells, "nbformat": major, "nbformat_minor": minor, "metadata": metadata,
	}, "")
	return append(text, '\n'), err
}

func (c RunCell) object(taken map[string]bool) map[string]any {
	outputs := []any{}
	for _, o := range c.Outputs {
		outputs = append(outputs, o.Object())
	}
	return map[string]any{
		"cell_type": "code", "id": seededID(c.Seed, taken), "metadata": map[string]any{},
		"source": output.SplitLines(c.Source), "execution_count": output.Count(c.ExecutionCount), "outputs": outputs,
	}
}

// seededID returns an id of eight hexadecimal digits that is not taken yet.
func seededID(seed string, taken map[string]bool) string {
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
