package notebook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Errors of a Document, besides ErrNotNotebook, ErrOldFormat and bounded.ErrTooLong.
var (
	// ErrCellChanged means that a handle of the form #index-hash8 names a cell whose source is
	// another one now.
	ErrCellChanged = errors.New("the cell has changed")
	// ErrNoIndex means that no cell has an index.
	ErrNoIndex = errors.New("no cell has this index")
)

// NoCellError means that no cell has a handle.
type NoCellError struct {
	Handle  string
	Nearest []string // at most 3 handles that resemble it, the closest first
}

// Error implements error.
func (e *NoCellError) Error() string { return fmt.Sprintf("no cell has the id %.100q", e.Handle) }

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
	Tags   []string
	Title  string  // of a code cell: what follows #@title
	Params []Param // of a code cell: its lines NAME = VALUE #@param
	// ExecutionCount is the kernel's In[n]; 0 for none.
	ExecutionCount int
	// Outputs is the JSON list of outputs, nil for none. It shares the document's memory: do not
	// change it. It has null for each NaN and Infinity.
	Outputs json.RawMessage
}

// Param is a value that a form of Colab sets.
type Param struct{ Name, Value string }

// NewCell is a cell to insert.
type NewCell struct {
	Type   CellType
	Source string
	Tags   []string
}

// Document is a notebook file as bytes, with the places of its cells in them. An edit changes
// only the bytes of what it edits; if it fails, it changes nothing. Edits write new bytes, so a
// copy of the struct is a copy of the document.
type Document struct {
	text []byte
}

// Parse reads a notebook; it keeps text, which must not change any more. The error is
// ErrNotNotebook, ErrOldFormat (another major version than 4), or bounded.ErrTooLong beyond
// MaxBytes, MaxCells, or MaxSourceBytes in one cell.
func Parse(text []byte) (*Document, error) { return &Document{text: text}, errUnfinished }

// New returns an empty notebook for Python, as nbformat writes it.
func New() *Document { return &Document{} }

// Bytes returns the file. Do not change it.
func (d *Document) Bytes() []byte { return d.text }

// Digest returns the hexadecimal SHA-256 of the file.
func (d *Document) Digest() string {
	sum := sha256.Sum256(d.text)
	return hex.EncodeToString(sum[:])
}

// Minor returns the minor version of the format: 5 for nbformat 4.5.
func (d *Document) Minor() int { return minor }

// Language returns the language of the code as the notebook names it; python if it names none.
func (d *Document) Language() string { return "python" }

// IsPython reports whether the code is Python.
func (d *Document) IsPython() bool { return true }

// Len returns the number of cells.
func (d *Document) Len() int { return 0 }

// Cell returns a cell; i must be at least 0 and below Len.
func (d *Document) Cell(i int) Cell { panic(errUnfinished) }

// Find returns the index of the cell with a handle: its id since nbformat 4.5; before that
// metadata.id, which Colab writes, or else #index-hash8 with the start of the source's SHA-256.
// A cell whose id is missing, not valid, or taken by a cell above has a handle of the last form.
// The error is *NoCellError or ErrCellChanged.
func (d *Document) Find(handle string) (int, error) { return 0, errUnfinished }

// Insert inserts a cell before the cell with the index at; -1 and Len append it. It returns the
// new cell's handle.
func (d *Document) Insert(at int, c NewCell) (handle string, err error) { return "", errUnfinished }

// SetSource changes a cell's source, and its type unless t is empty. The outputs of a code cell
// stay; another type of cell has none.
func (d *Document) SetSource(i int, source string, t CellType) error { return errUnfinished }

// Delete deletes a cell.
func (d *Document) Delete(i int) error { return errUnfinished }

// Move moves a cell; to is its index afterwards.
func (d *Document) Move(i, to int) error { return errUnfinished }

// SetOutputs sets the outputs and the execution count of a code cell; 0 means none. An output is
// an object of nbformat, such as output.Output.Object returns; texts in it may be strings or
// lists of lines.
func (d *Document) SetOutputs(i, executionCount int, outputs []map[string]any) error {
	return errUnfinished
}

// RepairIDs gives an id to each cell that needs one and has none, or has one that is not valid or
// belongs to a cell above, and returns a sentence about each. Before nbformat 4.5 cells need
// none. Call it before the first edit.
func (d *Document) RepairIDs() (notes []string) { return nil }

// Upgrade makes a notebook of an earlier nbformat 4 one of 4.5, in which each cell has an id, and
// returns sentences about what it changed.
func (d *Document) Upgrade() (notes []string) { return nil }

// Strip removes all outputs and execution counts.
func (d *Document) Strip() {}

var errUnfinished = errors.New("not written yet")
