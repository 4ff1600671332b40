package main

import (
	"fmt"
	"os"
	"path/filepath"

	"colabrelay/relay/notebook"
)

// kinds are the edits whose results Jupyter's packages check.
var kinds = []struct {
	name string
	edit func(d *notebook.Document) error
}{
	{"insert-code", func(d *notebook.Document) error { return insert(d, d.Len()/2) }},
	{"insert-markdown", func(d *notebook.Document) error {
		_, err := d.Insert(0, notebook.NewCell{Type: notebook.Markdown, Source: "# A\n\ntext"})
		return err
	}},
	{"append-raw", func(d *notebook.Document) error {
		_, err := d.Insert(-1, notebook.NewCell{Type: notebook.Raw})
		return err
	}},
	{"set-source", func(d *notebook.Document) error { return d.SetSource(0, "a = 1\nb = 2\n", "") }},
	{"to-code", func(d *notebook.Document) error { return d.SetSource(0, "a = 1", notebook.Code) }},
	{"to-markdown", func(d *notebook.Document) error { return d.SetSource(0, "a = 1", notebook.Markdown) }},
	{"to-raw", func(d *notebook.Document) error { return d.SetSource(d.Len()-1, "", notebook.Raw) }},
	{"delete-first", func(d *notebook.Document) error { return d.Delete(0) }},
	{"delete-last", func(d *notebook.Document) error { return d.Delete(d.Len() - 1) }},
	{"move", func(d *notebook.Document) error { return d.Move(0, d.Len()-1) }},
	{"set-outputs", setOutputs},
	{"upgrade", func(d *notebook.Document) error { _, err := d.Upgrade(); return err }},
	{"strip", func(d *notebook.Document) error { d.Strip(); return nil }},
}

// setOutputs gives each kind of output to the first code cell.
func setOutputs(d *notebook.Document) error {
	for i := range d.Len() {
		if d.Cell(i).Type != notebook.Code {
			continue
		}
		data := map[string]any{"text/plain": []string{"a\n", "b"}, "image/png": "cG5n", "application/json": map[string]any{"z": []any{1, nil}}}
		return d.SetOutputs([]notebook.NewOutputs{{Index: i, ExecutionCount: 7, Outputs: []map[string]any{
			{"output_type": "stream", "name": "stderr", "text": []string{"ü\n"}},
			{"output_type": "display_data", "data": data, "metadata": map[string]any{"image/png": map[string]any{"width": 3}}},
			{"output_type": "execute_result", "data": data, "metadata": map[string]any{}, "execution_count": 7},
			{"output_type": "error", "ename": "E", "evalue": "", "traceback": []string{"a\nb"}},
		}}}, notebook.MaxBytes)
	}
	return nil
}

// writeEdited writes each sample as DIR/original/NAME, and with each edit as DIR/KIND/NAME.
func writeEdited(dir string, samples []sample) error {
	for _, s := range samples {
		if err := writeFile(filepath.Join(dir, "original", s.name), s.text); err != nil {
			return err
		}
		for _, kind := range kinds {
			d, err := notebook.Parse(s.text)
			if err != nil {
				return err
			}
			if d.Len() == 0 {
				continue
			}
			d.RepairIDs()
			if err := kind.edit(d); err != nil {
				return fmt.Errorf("%s of %s: %w", kind.name, s.name, err)
			}
			if err := writeFile(filepath.Join(dir, kind.name, s.name), d.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
