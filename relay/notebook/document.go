// Package notebook reads, edits and writes Jupyter notebook files: nbformat 4, as
// https://nbformat.readthedocs.io/en/latest/format_description.html describes it.
//
// It knows files and cells; it must not know where they come from or run anything. A notebook
// may come from anybody: reading is bounded, and no text in it selects a file. Files are never
// written anew: an edit replaces bytes, so all that it does not mean to change stays as it is.
// Start reading at Document.
package notebook

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// Bounds of a notebook that is read or edited.
const (
	MaxBytes       = 256 << 20 // of the file
	MaxCells       = 10_000
	MaxSourceBytes = 4 << 20 // of one cell's source
	maxKeys        = 1000    // of the notebook and of one cell; a schema knows at most 7
	maxName        = 100     // bytes of what a language, a kernel, a type or a tag is called; the rest is ignored
	// maxVersions bounds a notebook before and after an edit together, which are in memory at the
	// same time. An edit that makes a larger notebook small is possible.
	maxVersions = 256 << 20
)

// Errors of a Document, besides bounded.ErrTooLong.
var (
	// ErrNotNotebook means that a file is damaged or no notebook at all. Its text says where.
	ErrNotNotebook = errors.New("not a Jupyter notebook")
	// ErrOldFormat means another major version of the format than 4.
	ErrOldFormat = errors.New("the notebook's format is not nbformat 4")
	// ErrCellChanged means that a handle of the form #index-hash8 names a cell whose source is
	// another one now.
	ErrCellChanged = errors.New("the cell has changed")
	// ErrNoIndex means that no cell has an index.
	ErrNoIndex = errors.New("no cell has this index")
)

// byteOrderMark is what some editors on Windows begin a file with.
const byteOrderMark = "\ufeff"

// unchosen is the language that VS Code writes while no kernel is chosen.
const unchosen = "plaintext"

// Document is a notebook file as bytes, with the places of its cells in them. An edit changes
// only the bytes of what it edits; if it fails, it changes nothing. Edits make new bytes, so a
// copy of the struct is a copy of the document. Goroutines may read a document together while none
// edits it.
//
// A span is empty if the part is not there; of a key that occurs twice the last one counts, as for
// Python.
type Document struct {
	text     []byte
	most     int  // bound of text, in bytes
	top      span // the notebook
	list     span // of cells
	metadata span
	minorAt  span
	minor    int
	cells    []place
	style    style
}

// place says where the parts of a cell are.
type place struct {
	all, id, metadata, source, outputs, count span

	cellType CellType
	// name is the cell's id if that is valid and no cell above has it.
	name string
	// own and colab are the ids in the cell and in its metadata, if they are valid.
	own, colab string
}

// Parse reads a notebook; it keeps text, which must not change any more. The error is
// ErrNotNotebook, ErrOldFormat (another major version than 4), or bounded.ErrTooLong beyond
// MaxBytes, MaxCells, or MaxSourceBytes in one cell.
func Parse(text []byte) (*Document, error) { return parseUpTo(text, MaxBytes) }

func parseUpTo(text []byte, most int) (*Document, error) {
	if len(text) > most {
		return nil, fmt.Errorf("reading a notebook: %w", bounded.TooLong(int64(most)))
	}
	from := len(text) - len(bytes.TrimPrefix(text, []byte(byteOrderMark)))
	if err := check(text, from); err != nil {
		return nil, err
	}
	end := bytes.TrimRight(text, " \t\r\n")
	d := &Document{text: text, most: most, top: span{skip(text, from), len(end)}}
	all, err := d.members(d.top)
	if err != nil {
		return nil, err
	}
	var majorAt span
	for _, m := range all {
		switch m.key {
		case "cells":
			d.list = m.value
		case "metadata":
			d.metadata = m.value
		case "nbformat":
			majorAt = m.value
		case "nbformat_minor":
			d.minorAt = m.value
		}
	}
	switch major := d.number(majorAt); {
	case major > 0 && major != 4:
		return nil, oldFormat(major)
	case major != 4:
		return nil, fmt.Errorf("%w: it has no format version", ErrNotNotebook)
	case d.list.len() == 0:
		return nil, fmt.Errorf("%w: it has no list of cells", ErrNotNotebook)
	}
	d.minor = max(0, d.number(d.minorAt))
	d.style = d.styleOf(all)
	if err := d.readCells(); err != nil {
		return nil, err
	}
	return d, nil
}

// oldFormat returns the error of another major version of the format than 4.
func oldFormat(major int) error {
	if major < 4 {
		return fmt.Errorf("%w but %d: open the notebook in Jupyter or Colab and save it, which converts it", ErrOldFormat, major)
	}
	return fmt.Errorf("%w but %d, which is newer than this program: look for an update of colab-relay", ErrOldFormat, major)
}

// members returns the members of an object.
func (d *Document) members(object span) (all []element, err error) {
	if d.text[object.start] != '{' {
		return nil, fault(d.text, object.start, "another value stands where an object is expected")
	}
	for m := range elements(d.text, object) {
		if len(all) == maxKeys {
			return nil, fault(d.text, m.start, fmt.Sprintf("an object has more than %d keys", maxKeys))
		}
		all = append(all, m)
	}
	return all, nil
}

// readCells finds the parts of the cells.
func (d *Document) readCells() error {
	if d.text[d.list.start] != '[' {
		return fault(d.text, d.list.start, "another value stands where a list of cells is expected")
	}
	for e := range elements(d.text, d.list) {
		if len(d.cells) == MaxCells {
			return fmt.Errorf("reading a notebook: %w: over %d cells", bounded.ErrTooLong, MaxCells)
		}
		members, err := d.members(e.value)
		if err != nil {
			return err
		}
		p := place{all: e.value}
		for _, m := range members {
			switch m.key {
			case "id":
				p.id = m.value
			case "cell_type":
				p.cellType = CellType(d.nameAt(m.value))
			case "metadata":
				p.metadata = m.value
			case "source":
				p.source = m.value
			case "outputs":
				p.outputs = m.value
			case "execution_count":
				p.count = m.value
			}
		}
		if err := d.checkSource(p.source); err != nil {
			return err
		}
		p.own, p.colab = d.idAt(p.id), d.idAt(lookup(d.text, p.metadata, "id"))
		d.cells = append(d.cells, p)
	}
	d.nameCells()
	return nil
}

// checkSource refuses a source that is neither a text, a list of texts nor null, or too long.
func (d *Document) checkSource(at span) error {
	if at.len() == 0 || d.text[at.start] == 'n' {
		return nil
	}
	if d.text[at.start] != '[' && d.text[at.start] != '"' {
		return fault(d.text, at.start, "a cell's source is not text")
	}
	for e := range elements(d.text, at) {
		if d.text[e.start] != '"' {
			return fault(d.text, e.start, "a cell's source is not text")
		}
	}
	size := 0
	if at.len() > MaxSourceBytes {
		for line := range lines(d.part(at)) {
			size += len(line)
		}
	}
	if size > MaxSourceBytes {
		return fmt.Errorf("reading a notebook: a cell's source is %w", bounded.TooLong(MaxSourceBytes))
	}
	return nil
}

// lines yields the texts of a source.
func lines(source []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(source) > 0 && source[0] == '"' {
			yield(decode(source))
			return
		}
		for e := range elements(source, span{0, len(source)}) {
			if !yield(decode(source[e.start:e.value.end])) {
				return
			}
		}
	}
}

// nameCells sets the name of each cell, by which a handle finds it. The ids of cells go before
// those in their metadata.
func (d *Document) nameCells() {
	taken := map[string]bool{}
	name := func(id func(p *place) string) {
		for i := range d.cells {
			p := &d.cells[i]
			if id := id(p); p.name == "" && id != "" && !taken[id] {
				p.name, taken[id] = id, true
			}
		}
	}
	if d.minor >= 5 {
		name(func(p *place) string { return p.own })
	}
	name(func(p *place) string { return p.colab })
}

// valid is what an id may be.
var valid = lazy.Regexp(`^[A-Za-z0-9_-]{1,64}$`)

// idAt returns the id at a place, "" if it is not valid.
func (d *Document) idAt(at span) string {
	if at.len() <= 6*64+2 { // a byte needs at most the six of an escape sequence
		if id := d.nameAt(at); valid().MatchString(id) {
			return id
		}
	}
	return ""
}

// nameAt returns the text at a place, up to maxName bytes; "" for another value.
func (d *Document) nameAt(at span) string {
	if at.len() == 0 || d.text[at.start] != '"' {
		return ""
	}
	name := decode(d.part(at))
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// number returns the whole JSON number at a place, such as 4 or 4.0, or -1.
func (d *Document) number(at span) int {
	var n float64
	if json.Unmarshal(d.part(at), &n) != nil || n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// part returns the JSON of a part of the file.
func (d *Document) part(at span) []byte { return d.text[at.start:at.end:at.end] }

// New returns an empty notebook for Python, as nbformat writes it.
func New() *Document {
	text, err := Notebook{}.Text()
	if err != nil {
		panic(err) // it depends on nothing
	}
	d, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return d
}

// Bytes returns the file. Do not change it.
func (d *Document) Bytes() []byte { return d.text }

// Digest returns the hexadecimal SHA-256 of the file.
func (d *Document) Digest() string {
	sum := sha256.Sum256(d.text)
	return hex.EncodeToString(sum[:])
}

// Minor returns the minor version of the format: 5 for nbformat 4.5.
func (d *Document) Minor() int { return d.minor }

// Language returns the language of the code as the notebook names it; python if it names none.
func (d *Document) Language() string {
	named, kernel := d.languages()
	switch name := d.kernelName(); {
	case named+kernel != "":
		return cmp.Or(named, kernel)
	case !d.IsPython():
		return name
	}
	return "python"
}

// IsPython reports whether the names of language and kernel are those of Python. A notebook that
// names no language is for Python unless its kernel is one of R or Julia.
func (d *Document) IsPython() bool {
	named, kernel := d.languages()
	if language := strings.ToLower(named + kernel); language != "" {
		return strings.Contains(language, "python")
	}
	return d.kernelName() != "ir" && !strings.HasPrefix(d.kernelName(), "julia")
}

func (d *Document) kernelName() string {
	return d.nameAt(lookup(d.text, d.metadata, "kernelspec", "name"))
}

// languages returns the languages that the notebook and its kernel name.
func (d *Document) languages() (named, kernel string) {
	if named = d.nameAt(lookup(d.text, d.metadata, "language_info", "name")); named == unchosen {
		named = ""
	}
	return named, d.nameAt(lookup(d.text, d.metadata, "kernelspec", "language"))
}

// Len returns the number of cells.
func (d *Document) Len() int { return len(d.cells) }
