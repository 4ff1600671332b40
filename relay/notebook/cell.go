package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/shared/lazy"
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
	c := Cell{Index: i, Type: p.cellType, Source: d.source(i), Halves: hasHalves(d.part(p.source)), Tags: d.tags(p)}
	c.Handle = d.handle(i, c.Source)
	if c.Type != Code {
		return c
	}
	c.Title, c.Params = form(c.Source)
	c.ExecutionCount = max(0, d.number(p.count))
	if outputs := d.part(p.outputs); len(outputs) > 0 && outputs[0] == '[' && !isEmpty(outputs) {
		c.Outputs = outputs
	}
	return c
}

// source returns a cell's source.
func (d *Document) source(i int) string {
	var b strings.Builder
	for line := range lines(d.part(d.cells[i].source)) {
		b.WriteString(line)
	}
	return b.String()
}

// maxTags bounds the tags of a cell. The rest is ignored.
const maxTags = 200

// tags returns the tags in a cell's metadata.
func (d *Document) tags(p *place) (tags []string) {
	for e := range elements(d.text, lookup(d.text, p.metadata, "tags")) {
		if tag := d.nameAt(e.value); tag != "" && e.key == "" && len(tags) < maxTags {
			tags = append(tags, tag)
		}
	}
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
