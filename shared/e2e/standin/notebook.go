package standin

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Cell is a cell as get_cells shows it.
type Cell struct {
	Type    string           `json:"cell_type"` // code or markdown
	ID      string           `json:"id"`
	Source  []string         `json:"source"` // lines with their line breaks
	Outputs []map[string]any `json:"outputs,omitempty"`
	// Count is nil until the cell has run, and while it runs.
	Count *int `json:"execution_count"`
}

// Notebook is the notebook in a tab. Colab saves it by itself after each change.
type Notebook struct {
	mu    sync.Mutex
	cells []Cell
	saved strings.Builder
	// kernel holds an element while a cell runs: cells run one after the other.
	kernel chan struct{}
}

// NewNotebook returns a notebook with these cells, which get ids if they have none.
func NewNotebook(cells ...Cell) *Notebook {
	n := &Notebook{kernel: make(chan struct{}, 1)}
	n.Edit(func([]Cell) []Cell { return cells })
	return n
}

// NewCell returns a cell with this source.
func NewCell(cellType, source string) Cell {
	return Cell{Type: cellType, ID: rand.Text()[:12], Source: lines(source)}
}

// Edit changes the notebook as a person at the page does.
func (n *Notebook) Edit(change func([]Cell) []Cell) {
	_ = n.change(func() error {
		n.cells = slices.Clone(change(slices.Clone(n.cells)))
		for i := range n.cells {
			if n.cells[i].ID == "" {
				n.cells[i].ID = rand.Text()[:12]
			}
		}
		return nil
	})
}

// Cells returns the cells now.
func (n *Notebook) Cells() []Cell {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cells)
}

// Saved returns every state of the notebook that was saved, one a line.
func (n *Notebook) Saved() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.saved.String()
}

// change applies a change and saves the notebook.
func (n *Notebook) change(apply func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := apply(); err != nil {
		return err
	}
	state, err := json.Marshal(n.cells)
	if err != nil {
		return err
	}
	n.saved.WriteString("saved: " + string(state) + "\n")
	return nil
}

func (n *Notebook) insert(at int, cell Cell) error {
	return n.change(func() error {
		if at < 0 || at > len(n.cells) {
			return fmt.Errorf("cellIndex %d is out of range", at)
		}
		n.cells = slices.Insert(n.cells, at, cell)
		return nil
	})
}

// edit changes the cell with this id.
func (n *Notebook) edit(id string, change func(at int)) error {
	return n.change(func() error {
		at := slices.IndexFunc(n.cells, func(c Cell) bool { return c.ID == id })
		if at < 0 {
			return fmt.Errorf("cell %s not found", id)
		}
		change(at)
		return nil
	})
}

// lines splits a source as nbformat does.
func lines(source string) []string {
	if source == "" {
		return []string{}
	}
	all := strings.SplitAfter(source, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}
