// Package export writes runs as a document: a Jupyter notebook, Markdown with its pictures
// beside it, or Python.
//
// It must not choose runs, fetch anything itself, or name a file after what a VM sent. The same
// runs make the same bytes. Start reading at Format.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Run is a run to be written.
type Run struct {
	contract.Execution
	Runtime string
	Name    string // of the code, such as its file's; may be empty
	Code    string
	CodeCut bool // Code is only the beginning
	Events  []contract.Event
	Fetch   output.Fetch
}

// ErrExists: the file exists, and must not be replaced.
var ErrExists = errors.New("already exists")

// document is a document that is complete in memory, so that a fault leaves no partial file.
type document struct {
	text  []byte
	files map[string][]byte // pictures, by their name beside the text
}

// formats are the functions that make a document, by the extension of its file.
var formats = map[string]func(ctx context.Context, stem string, runs []Run) (document, error){
	".ipynb": ipynb, ".md": markdown, ".py": python,
}

// Format returns the format of a file's name, or an error that names those there are.
func Format(path string) (string, error) {
	ext := strings.ToLower(filepath.Ext(path))
	if formats[ext] == nil {
		return "", fmt.Errorf("%q has no known extension: use .ipynb for a notebook, .md for Markdown or .py for Python", filepath.Base(path))
	}
	return ext, nil
}

// Write writes the runs to path, whose extension chooses the format. It replaces an existing
// file only with force. The file appears complete, by a rename.
func Write(ctx context.Context, path string, runs []Run, force bool) error {
	ext, err := Format(path)
	if err != nil {
		return err
	}
	stem := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if err := free(path, force); err != nil {
		return err
	}
	d, err := formats[ext](ctx, stem, runs)
	if err = cmp.Or(err, ctx.Err()); err != nil { // outputs that were not fetched any more are missing
		return err
	}
	dir := filepath.Dir(path)
	for name := range d.files {
		if err := free(filepath.Join(dir, name), force); err != nil {
			return err
		}
	}
	for name, content := range d.files { // first, so that the text refers to no missing picture
		if err := save(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return save(path, d.text)
}

// free returns an error if a file must not be written.
func free(path string, force bool) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil && !force:
		return fmt.Errorf("%q %w", path, ErrExists)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// save writes a file completely or not at all.
func save(path string, content []byte) error {
	_, err := render.SaveFile(filepath.Dir(path), filepath.Base(path), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	return err
}

// source returns a run's code, and says if it is not all of it.
func (r *Run) source() string {
	if r.CodeCut {
		return r.Code + "\n# The rest of this code was too long to be kept."
	}
	return strings.TrimRight(r.Code, "\n")
}

// title describes a run in one line.
func (r *Run) title() string {
	words := []string{r.CreatedAt.Local().Format("2006-01-02 15:04:05"), plain.Line(r.Runtime), plain.Line(string(r.Status))}
	if r.Name != "" {
		words = append([]string{plain.Line(r.Name)}, words...)
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		words = append(words, Took(r.FinishedAt.Sub(*r.StartedAt)))
	}
	return strings.Join(words, ", ")
}

// Took returns a duration as people write it, with tenths of a second below ten seconds.
func Took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	}
	return progress.Duration(d)
}

// ending returns a line about a run that ended in a way that its output does not show.
func (r *Run) ending() string {
	switch r.Status {
	case contract.StatusSucceeded, contract.StatusFailed:
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("[this run's status is %s: %s", plain.Line(string(r.Status)), plain.Line(r.Reason)), ": ") + "]\n"
}
