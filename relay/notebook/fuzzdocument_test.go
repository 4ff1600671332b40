package notebook

import (
	"testing"

	"colabrelay/relay/output"
)

// Whatever a file holds, each edit leaves a notebook with the meant change, and an edit that is
// undone leaves the file as it was.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(odd), "a\r\n\u2028b", 0)
	f.Add([]byte(`{"nbformat": 4, "cells": [{}, {"source": null}, {"source": ["", "a"], "source": ["b\r", "\n", ""]}]}`), "\n", 2)
	f.Add([]byte(`{"nbformat":4,"nbformat_minor":5,"cells":[{"id":"a","cell_type":"code","outputs":[NaN,"\udc00"],"execution_count":3},{"id":"a","metadata":{"tags":["x",[]],"id":"b"}}]}`), "", 1)
	f.Add(New().Bytes(), "x = 1\n\"\\\x00\xff", 0)
	f.Fuzz(func(t *testing.T, text []byte, source string, i int) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		for k := range d.Len() {
			c := d.Cell(k)
			if found, err := d.Find(c.Handle); err != nil || found != k {
				t.Fatalf("%q is found at %d: %v", c.Handle, found, err)
			}
		}
		if d.Len() > 0 {
			i = max(0, i%d.Len())
			undo(t, *d, i)
			replace(t, *d, i, source)
		}
		whole(t, *d)
	})
}

// undo makes edits and undoes them.
func undo(t *testing.T, d Document, i int) {
	before := string(d.Bytes())
	must(t, func() error { _, err := d.Insert(i, NewCell{Type: Code, Source: "a"}); return err }())
	if d.Cell(i).Source != "a" {
		t.Fatalf("%q", d.Bytes())
	}
	must(t, d.Delete(i))
	must(t, d.Move(i, 0))
	must(t, d.Move(0, i))
	must(t, d.SetSource(i, d.Cell(i).Source, ""))
	if string(d.Bytes()) != before {
		t.Fatalf("%q became %q", before, d.Bytes())
	}
}

// replace changes a cell, and no other one.
func replace(t *testing.T, d Document, i int, source string) {
	before := d
	must(t, d.SetSource(i, source, Code))
	must(t, d.SetOutputs(i, 3, []map[string]any{{"a": source}}))
	must(t, d.SetSource(i, source, Raw))
	c := d.Cell(i)
	if c.Source != output.ValidText(source) || c.Type != Raw || c.Outputs != nil || c.ExecutionCount != 0 {
		t.Fatalf("%+v", c)
	}
	if former, now := before.cells[i].all, d.cells[i].all; string(before.text[:former.start]) != string(d.text[:now.start]) || string(before.text[former.end:]) != string(d.text[now.end:]) {
		t.Fatalf("%q became %q", before.text, d.text)
	}
	if raw := d.source(i); raw != before.source(i) {
		must(t, d.SetSource(i, before.source(i), ""))
		if d.source(i) != before.source(i) {
			t.Fatalf("%q", d.source(i))
		}
	}
}

// whole makes the edits of whole notebooks.
func whole(t *testing.T, d Document) {
	cells := d.Len()
	d.Strip()
	_, _ = d.Upgrade() // the file may become too long
	if d.Minor() < minor || d.Len() != cells || len(d.RepairIDs()) > 0 {
		t.Fatalf("%q", d.Bytes())
	}
	for i := range cells {
		if c := d.Cell(i); c.Type == Code && c.Outputs != nil || c.Handle != d.cells[i].own {
			t.Fatalf("%+v of %q", c, d.Bytes())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
