package nbrun

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/dataflow"
)

// FuzzRecord reads any file as the record of a notebook's runs. A record that is accepted can be
// reported, pruned and stored.
func FuzzRecord(f *testing.F) {
	const path = "/n.ipynb"
	for _, seed := range []string{
		`{"kind":"notebook","version":1,"path":"/n.ipynb","run":{"run_id":"r","status":"failed","plan":[{"cell_id":"a","status":"failed","attempts":[{"error":{"ename":"E\u001b[2J","evalue":"v"},"seconds":-1}]},{"cell_id":"b","skipped_because":[{"cell_id":"a","names":["x"]}]}],"flights":[{"cell_id":"a","request_id":"q"}]}}`,
		`{"kind":"notebook","version":1,"path":"/n.ipynb","run":{"run_id":"r","plan":[null,{}]},"singles":[null]}`,
		`{"kind":"notebook","version":1,"path":"/n.ipynb","history":null,"life":{"runs":[{"cell_id":"a"}]},"facts":{"d":{"functions":{"f":{}}}},"code":{"d":"1"}}`,
		`{"kind":"notebook","version":1,"path":"/n.ipynb","run":{"plan":[]},"run":{"run_id":"x","flights":[null]}}`, "null", "[]",
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
		dataflow.Sync(nil, r.runs())
		r.prune()
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// FuzzChoices reads any selection of cells and any retry_on.
func FuzzChoices(f *testing.F) {
	f.Add("1-2,from:b,dirty", "none,*Error,[", "ResourceExhausted", "status code 503")
	f.Add("-1,9223372036854775808,3-1", ",,a?", "KeyboardInterrupt", "\xff")
	cells := []candidate{{Index: 0, Handle: "a", Dirty: true}, {Index: 2, Handle: "b", Stale: true}, {Index: 3, Handle: "1-2"}}
	f.Fuzz(func(t *testing.T, selection, retryOn, ename, evalue string) {
		chosen, err := selectCells(selection, cells)
		for i, at := range chosen {
			if at < 0 || at >= len(cells) || i > 0 && chosen[i-1] >= at {
				t.Fatalf("%q selects %v", selection, chosen)
			}
		}
		if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q", err.Error())
		}
		if p, err := NewRetryPolicy(retryOn); err == nil && p.Retryable("KeyboardInterrupt", evalue) {
			t.Errorf("%q retries an interrupt", retryOn)
		} else if err == nil {
			p.Retryable(ename, evalue)
		}
	})
}
