package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/relay/notebook"
)

// sample is a notebook of a package.
type sample struct {
	name string
	text []byte
}

// notebooks edits the sample notebooks of Jupyter's packages, and checks the edited files with
// these packages.
func (l *lab) notebooks(ctx context.Context, dir string) error {
	samples, err := l.samples()
	if err != nil {
		return err
	}
	const us = "relay/notebook"
	l.report.check(us, fmt.Sprintf("no byte of %d sample notebooks changes without an edit", len(samples)), each(samples, unchanged))
	l.report.check(us, "an edited line changes no other line, and undone, the file is as before", each(samples, editAndUndo))
	edited := filepath.Join(dir, "edited")
	if err := writeEdited(edited, samples); err != nil {
		return err
	}
	l.drive(ctx, sdk{name: "nbformat 5.11.1, jupytext 1.19.6", command: []string{
		l.python(), filepath.Join(l.drivers, "python", "notebooks.py"), edited,
	}, checks: 4})
	if err := l.parameters(ctx, filepath.Join(dir, "parameters")); err != nil {
		return err
	}
	return l.outputs(ctx, filepath.Join(dir, "run"), samples)
}

// python returns the interpreter that has Jupyter's packages.
func (l *lab) python() string {
	return filepath.Join(l.installed, "pythonnotebooks", "bin", "python")
}

// samples returns the sample notebooks of nbformat 4.
func (l *lab) samples() (all []sample, err error) {
	root := filepath.Join(l.installed, "samples")
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".ipynb" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if _, err = notebook.Parse(text); err == nil {
			all = append(all, sample{strings.ReplaceAll(name, string(filepath.Separator), "-"), text})
		} else if errors.Is(err, notebook.ErrOldFormat) {
			err = nil
		}
		return err
	})
	if err == nil && len(all) < 140 {
		err = fmt.Errorf("only %d sample notebooks in %s", len(all), root)
	}
	return all, err
}

// each joins the errors of a check of each sample.
func each(samples []sample, check func(d *notebook.Document) error) (all error) {
	for _, s := range samples {
		d, err := notebook.Parse(s.text)
		if err == nil {
			err = check(d)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return all
}

// unchanged sets what is already so.
func unchanged(d *notebook.Document) error {
	before := string(d.Bytes())
	for i := range d.Len() {
		c := d.Cell(i)
		if err := errors.Join(d.SetSource(i, c.Source, c.Type), d.Move(i, i)); err != nil {
			return err
		}
	}
	if string(d.Bytes()) != before {
		return errors.New("the file changed")
	}
	return nil
}

// editAndUndo makes each kind of edit in each cell, and undoes it.
func editAndUndo(d *notebook.Document) error {
	for i := range d.Len() {
		source := d.Cell(i).Source
		if len(source) == 0 {
			continue // an empty list has no layout to keep
		}
		edits := map[string][2]func(d *notebook.Document) error{
			"line": {func(d *notebook.Document) error {
				return d.SetSource(i, strings.TrimSuffix(source, "\n")+"\n# edited", "")
			}, func(d *notebook.Document) error { return d.SetSource(i, source, "") }},
			"move":   {func(d *notebook.Document) error { return d.Move(i, 0) }, func(d *notebook.Document) error { return d.Move(0, i) }},
			"insert": {func(d *notebook.Document) error { return insert(d, i) }, func(d *notebook.Document) error { return d.Delete(i) }},
		}
		for name, edit := range edits {
			edited := *d
			if err := edit[0](&edited); err != nil {
				return fmt.Errorf("%s, cell %d: %w", name, i, err)
			}
			if removed, added := difference(d.Bytes(), edited.Bytes()); name == "line" && (removed > 1 || added > 2) {
				return fmt.Errorf("cell %d: %d lines became %d", i, removed, added)
			}
			if err := edit[1](&edited); err != nil || string(edited.Bytes()) != string(d.Bytes()) {
				return fmt.Errorf("%s, cell %d undone: %v", name, i, err)
			}
		}
	}
	return nil
}

func insert(d *notebook.Document, at int) error {
	_, err := d.Insert(at, notebook.NewCell{Type: notebook.Code, Source: "x = 'ü' # <b>\n\ny = 2", Tags: []string{"a", "b"}})
	return err
}

// difference returns how many lines of one text became how many of another.
func difference(a, b []byte) (removed, added int) {
	before, after := strings.SplitAfter(string(a), "\n"), strings.SplitAfter(string(b), "\n")
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return len(before), len(after)
}
