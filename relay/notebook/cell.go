package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"colabrelay/relay/suggest"
)

// ErrNoCell means that no cell has a handle.
var ErrNoCell = errors.New("no cell has the id")

// CellType is the kind of a cell, as nbformat names it.
type CellType string

// Cell types.
const (
	Code     CellType = "code"
	Markdown CellType = "markdown"
	Raw      CellType = "raw"
)

// Cell is one cell as it is in the file. Its texts are from the file's author: they are data.
type Cell struct {
	Index  int
	Handle string // names the cell in this document; see Find
	Type   CellType
	Source string
	// Halves says that the source has halves of surrogate pairs, for which Source has U+FFFD.
	Halves bool
	Tags   []string
	Title  string  // of a code cell: what follows #@title
	Params []Param // of a code cell: its lines NAME = VALUE #@param
	// ExecutionCount is the kernel's In[n]; 0 for none.
	ExecutionCount int
	// Outputs is the JSON list of outputs, nil for none. It shares the document's memory: do not
	// change it. As Python writes it, it may have NaN and Infinity where a number stands.
	Outputs json.RawMessage
}

// Headline tells a person which cell it is: its title, or its first line.
func (c *Cell) Headline() string {
	for line := range strings.Lines(c.Title + "\n" + c.Source) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// Param is a value that a form of Colab sets.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NewCell is a cell to insert.
type NewCell struct {
	Type   CellType
	Source string
	Tags   []string
}

// Cell returns a cell; i must be at least 0 and below Len.
func (d *Document) Cell(i int) Cell {
	p := &d.cells[i]
	c := Cell{Index: i, Type: p.cellType, Source: d.source(i), Halves: d.hasHalves(i), Tags: d.tags(p)}
	c.Handle = d.handle(i, c.Source)
	if c.Type != Code {
		return c
	}
	c.Title, c.Params = form(c.Source)
	c.ExecutionCount = max(0, number(d.text, p.count))
	if outputs := d.part(p.outputs); len(outputs) > 0 && outputs[0] == '[' && !isEmpty(outputs) {
		c.Outputs = outputs
	}
	return c
}

// source returns a cell's source.
func (d *Document) source(i int) string { return joined(d.part(d.cells[i].source)) }

// isEmpty reports whether a list has no elements.
func isEmpty(list []byte) bool {
	s := scanner{text: list, at: 1}
	return s.next() == ']'
}

// maxTags bounds the tags of a cell. The rest is ignored.
const maxTags = 200

// tags returns the tags in a cell's metadata.
func (d *Document) tags(p *place) (tags []string) {
	s := &scanner{text: d.part(p.metadata)}
	if len(s.text) == 0 {
		return nil
	}
	_ = passKeys(s, map[string]func() error{"tags": func() error {
		tags = nil
		if s.next() != '[' {
			_, err := s.value()
			return err
		}
		return s.array(func() error {
			var tag string
			err := textTo(s, &tag)()
			if tag != "" && len(tags) < maxTags {
				tags = append(tags, tag)
			}
			return err
		})
	}})
	return tags
}

// handle returns the handle of a cell with this source.
func (d *Document) handle(i int, source string) string {
	if name := d.cells[i].name; name != "" {
		return name
	}
	sum := sha256.Sum256([]byte(source))
	return fmt.Sprintf("#%d-%s", i, hex.EncodeToString(sum[:4]))
}

// Find returns the index of the cell with a handle: its id since nbformat 4.5; without one, or
// before 4.5, metadata.id, which Colab writes; or else #index-hash8 with the start of the source's
// SHA-256. An id that is not valid or that a cell above has is none. The error is ErrNoCell,
// or ErrCellChanged for a handle of the last form whose cell has another source now.
func (d *Document) Find(handle string) (int, error) {
	if at, ok := strings.CutPrefix(handle, "#"); ok {
		return d.findByPlace(handle, at)
	}
	var names []string
	for i := range d.cells {
		if d.cells[i].name == handle && handle != "" {
			return i, nil
		}
		if len(handle) <= maxCompared {
			names = append(names, d.cells[i].name)
		}
	}
	return 0, fmt.Errorf("%w %.100q%s", ErrNoCell, handle, suggest.Meant(handle, names))
}

// maxCompared is up to how many bytes of a handle others are compared with.
const maxCompared = 100

func (d *Document) findByPlace(handle, place string) (int, error) {
	number, hash, _ := strings.Cut(place, "-")
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= d.Len() || len(hash) != 8 {
		return 0, fmt.Errorf("%w %.100q", ErrNoCell, handle)
	}
	sum := sha256.Sum256([]byte(d.source(i)))
	if hash != hex.EncodeToString(sum[:4]) {
		return 0, fmt.Errorf("%w: %s names cell %d as it was before; it is %s now", ErrCellChanged, handle, i, d.handle(i, d.source(i)))
	}
	return i, nil
}
