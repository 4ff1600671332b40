package nbrun

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"colabrelay/relay/checkpoint"
)

// FuzzRecord reads any file as the record of a notebook's runs. A record that is accepted can be
// reported, pruned and stored.
func FuzzRecord(f *testing.F) {
	const path = "/n.ipynb"
	for _, seed := range []string{
		`{"kind":"notebook","version":3,"path":"/n.ipynb","run":{"run_id":"r","status":"failed","plan":[{"cell_id":"a","status":"failed","attempts":[{"error":{"ename":"E\u001b[2J","evalue":"v"},"seconds":-1}]},{"cell_id":"b","skipped_because":[{"cell_id":"a","names":["x"]}]}],"job":{"job_id":"j","accepted":true,"steps":[{"step_id":"s","cell_id":"a"}],"proposed":[{}]}}}`,
		`{"kind":"notebook","version":3,"path":"/n.ipynb","run":{"run_id":"r","plan":[null,{}]},"cells":[null]}`,
		`{"kind":"notebook","version":3,"path":"/n.ipynb","ran":{"a":{"cell_id":"b"}},"cells":[{"run_id":"r","plan":[{"cell_id":"a"}],"job":{"job_id":"j","accepted":true}}]}`,
		`{"kind":"notebook","version":3,"path":"/n.ipynb","run":{"plan":[]},"run":{"run_id":"x","job":{"steps":[{}]}}}`, "null", "[]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return // checkpoint.Load refuses it
		}
		dir := t.TempDir()
		if _, err := checkpoint.Save(dir, Name(path), json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		r, err := loadRecord(dir, path)
		if err != nil {
			return
		}
		if report, err := r.Report().JSON(); err != nil || bytes.ContainsFunc(report, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
			t.Errorf("the report is %q, %v", report, err)
		}
		markdown := r.Report().Markdown()
		if strings.ContainsFunc(string(markdown), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Errorf("the report is %q", markdown)
		}
		r.prune()
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// FuzzChoices reads any selection of cells.
func FuzzChoices(f *testing.F) {
	f.Add("1-2,from:b,dirty")
	f.Add("-1,9223372036854775808,3-1")
	cells := []*cell{{index: 0, handle: "a"}, {index: 2, handle: "b"}, {index: 3, handle: "1-2"}}
	f.Fuzz(func(t *testing.T, selection string) {
		chosen, err := selectCells(selection, cells, func(*cell) bool { return true })
		for i, c := range chosen {
			if i > 0 && chosen[i-1].index >= c.index {
				t.Fatalf("%q selects %v", selection, chosen)
			}
		}
		if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q", err.Error())
		}
	})
}
