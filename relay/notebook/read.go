// Package notebook reads and writes Jupyter notebook files: nbformat 4, as
// https://nbformat.readthedocs.io/en/latest/format_description.html describes it.
//
// It knows files, cells and outputs; it must not know where they come from or run anything. A
// notebook may come from anybody: reading is bounded, and no text in it selects a file. Start
// reading at CodeCells, which reads, and Notebook.Write.
package notebook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"colabrelay/shared/bounded"
)

// Bounds of a notebook that is read. Outputs are skipped, but count for its size.
const (
	MaxBytes       = 256 << 20
	MaxCells       = 10_000
	MaxSourceBytes = 4 << 20 // of all code cells together
)

// Errors of CodeCells, besides those of the reader.
var (
	ErrNotNotebook = errors.New("not a Jupyter notebook")
	ErrOldFormat   = errors.New("the notebook's format is not nbformat 4")
	ErrNotPython   = errors.New("the notebook is not for Python")
)

// CodeCell is a code cell of a notebook.
type CodeCell struct {
	Index  int    // among all cells of the notebook, from 0
	ID     string // as in the file; empty before nbformat 4.5
	Source string // as in the file: magics such as %pip, and !commands, stay as they are
}

// CodeCells returns the code cells of a notebook in order, blank ones too. The error is
// ErrNotNotebook, ErrOldFormat (before nbformat 4), ErrNotPython, or bounded.ErrTooLong beyond
// MaxBytes, MaxCells or MaxSourceBytes.
func CodeCells(r io.Reader) ([]CodeCell, error) { return codeCells(r, MaxBytes) }

func codeCells(r io.Reader, most int64) ([]CodeCell, error) {
	limited := &io.LimitedReader{R: r, N: most + 1}
	f := file{decoder: json.NewDecoder(withoutMark(limited))}
	err := f.read()
	switch {
	case limited.N == 0:
		return nil, fmt.Errorf("reading a notebook: %w", bounded.TooLong(most))
	case errors.Is(err, bounded.ErrTooLong):
		return nil, fmt.Errorf("reading a notebook: %w", err)
	case err != nil:
		return nil, notJSON(err)
	}
	return f.cells, f.check()
}

// withoutMark skips the byte order mark that some editors write.
func withoutMark(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if mark, _ := b.Peek(3); bytes.Equal(mark, []byte("\ufeff")) {
		_, _ = b.Discard(3)
	}
	return b
}

// notJSON returns ErrNotNotebook for a text of another form, and err for an error of the reader.
func notJSON(err error) error {
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	_, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isSyntax:
		return fmt.Errorf("%w: %v at byte %d", ErrNotNotebook, syntax, syntax.Offset)
	case isType, errors.Is(err, errForm):
		return fmt.Errorf("%w: %v", ErrNotNotebook, err)
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it ends too early", ErrNotNotebook)
	}
	return fmt.Errorf("reading a notebook: %w", err)
}

// errForm is JSON that does not have a notebook's form.
var errForm = errors.New("it does not have the form of a notebook")

// file is a notebook file that is being read.
type file struct {
	decoder  *json.Decoder
	cells    []CodeCell
	count    int // of all cells
	bytes    int // of all sources
	hasCells bool
	major    int
	metadata struct {
		Kernelspec struct {
			Language string `json:"language"`
		} `json:"kernelspec"`
		Info struct {
			Name string `json:"name"`
		} `json:"language_info"`
	}
}

// read reads the file. It holds one cell at a time in memory.
func (f *file) read() error {
	if err := f.delimiter('{'); err != nil {
		return err
	}
	for f.decoder.More() {
		key, err := f.decoder.Token()
		if err != nil {
			return err
		}
		switch key {
		case "cells":
			err = f.readCells()
		case "nbformat":
			err = f.decoder.Decode(&f.major)
		case "metadata":
			err = f.decoder.Decode(&f.metadata)
		default:
			err = f.decoder.Decode(&skipped{})
		}
		if err != nil {
			return err
		}
	}
	if err := f.delimiter('}'); err != nil {
		return err
	}
	if _, err := f.decoder.Token(); err != io.EOF {
		return errForm
	}
	return nil
}

func (f *file) delimiter(want json.Delim) error {
	got, err := f.decoder.Token()
	if err == nil && got != want {
		err = errForm
	}
	return err
}

func (f *file) readCells() error {
	if err := f.delimiter('['); err != nil {
		return err
	}
	f.hasCells = true
	for f.decoder.More() {
		if f.count == MaxCells {
			return fmt.Errorf("%w: over %d cells", bounded.ErrTooLong, MaxCells)
		}
		var c struct {
			Type   string `json:"cell_type"`
			ID     string `json:"id"`
			Source source `json:"source"`
		}
		if err := f.decoder.Decode(&c); err != nil {
			return err
		}
		if c.Type == "code" {
			f.cells = append(f.cells, CodeCell{Index: f.count, ID: c.ID, Source: string(c.Source)})
			if f.bytes += len(c.Source); f.bytes > MaxSourceBytes {
				return fmt.Errorf("the code is %w", bounded.TooLong(MaxSourceBytes))
			}
		}
		f.count++
	}
	return f.delimiter(']')
}

// check reports what kind of notebook was read.
func (f *file) check() error {
	switch language := f.metadata.Kernelspec.Language + f.metadata.Info.Name; {
	case f.major > 0 && f.major < 4:
		return fmt.Errorf("%w but %d: open the notebook in Jupyter or Colab and save it, which converts it", ErrOldFormat, f.major)
	case f.major != 4 || !f.hasCells:
		return fmt.Errorf("%w: %v", ErrNotNotebook, errForm)
	case language != "" && !strings.Contains(strings.ToLower(language), "python"):
		return fmt.Errorf("%w but for %.40q", ErrNotPython, language)
	}
	return nil
}

// source is a text that nbformat writes as a string or as a list of its lines.
type source string

// UnmarshalJSON implements json.Unmarshaler.
func (s *source) UnmarshalJSON(text []byte) error {
	var lines []string
	if len(text) == 0 || text[0] != '[' {
		return json.Unmarshal(text, (*string)(s))
	}
	err := json.Unmarshal(text, &lines)
	*s = source(strings.Join(lines, ""))
	return err
}

// skipped is a value that nobody needs.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }
