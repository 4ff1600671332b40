// Package notebook reads, edits and writes Jupyter notebook files: nbformat 4, as
// https://nbformat.readthedocs.io/en/latest/format_description.html describes it.
//
// It knows files and cells; it must not know where they come from or run anything. A notebook
// may come from anybody: reading is bounded, and no text in it selects a file. Files are never
// written anew: an edit replaces bytes, so all that it does not mean to change stays as it is.
// Start reading at Document.
package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"colabrelay/shared/bounded"
)

// Bounds of a notebook that is read or edited.
const (
	MaxBytes       = 256 << 20 // of the file
	MaxCells       = 10_000
	MaxSourceBytes = 4 << 20 // of one cell's source
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

// Document is a notebook file as bytes, with the places of its cells in them. An edit changes
// only the bytes of what it edits; if it fails, it changes nothing. Edits make new bytes, so a
// copy of the struct is a copy of the document. Goroutines may read a document together while none
// edits it.
type Document struct {
	text  []byte
	minor int
	most  int // bound of text, in bytes
	*index
}

// Parse reads a notebook; it keeps text, which must not change any more. The error is
// ErrNotNotebook, ErrOldFormat (another major version than 4), or bounded.ErrTooLong beyond
// MaxBytes, MaxCells, or MaxSourceBytes in one cell.
func Parse(text []byte) (*Document, error) { return parseUpTo(text, MaxBytes) }

func parseUpTo(text []byte, most int) (*Document, error) {
	if len(text) > most {
		return nil, fmt.Errorf("reading a notebook: %w", bounded.TooLong(int64(most)))
	}
	x, err := makeIndex(text)
	if err != nil {
		return nil, err
	}
	switch major := number(text, x.major); {
	case major > 0 && major != 4:
		return nil, oldFormat(major)
	case major != 4:
		return nil, fmt.Errorf("%w: it has no format version", ErrNotNotebook)
	case x.list.len() == 0:
		return nil, fmt.Errorf("%w: it has no list of cells", ErrNotNotebook)
	}
	d := &Document{text: text, most: most, minor: max(0, number(text, x.minor)), index: x}
	x.nameCells(d.minor)
	return d, nil
}

// oldFormat returns the error of another major version of the format than 4.
func oldFormat(major int) error {
	if major < 4 {
		return fmt.Errorf("%w but %d: open the notebook in Jupyter or Colab and save it, which converts it", ErrOldFormat, major)
	}
	return fmt.Errorf("%w but %d, which is newer than this program: look for an update of colab-relay", ErrOldFormat, major)
}

// New returns an empty notebook for Python, as nbformat writes it.
func New() *Document {
	text, err := Notebook{}.text()
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
	switch {
	case d.language != "":
		return d.language
	case d.kernel.language != "":
		return d.kernel.language
	case !d.isPython():
		return d.kernel.name
	}
	return "python"
}

// IsPython reports whether the code is Python.
func (d *Document) IsPython() bool { return d.isPython() }

// Len returns the number of cells.
func (d *Document) Len() int { return len(d.cells) }

// part returns the JSON of a part of the file.
func (d *Document) part(at span) []byte { return d.text[at.start:at.end:at.end] }
