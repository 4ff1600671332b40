package dataflow

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"colabrelay/relay/client"
)

// FuzzFacts reads any answer of a kernel about three cells, and uses it as the facts of a
// notebook. Its names can be shown as they are.
func FuzzFacts(f *testing.F) {
	digest := strings.Repeat("ab", 32)
	f.Add([]byte(`[{"digest":"` + digest + `","stores":["a"],"reads":["b"]},{"digest":"` + digest + `","problem":"p\u001b[2J","passing":true},{}]`))
	f.Add([]byte(`[{"digest":"` + digest + `","functions":{"f":{"reads":["x"],"calls":{"f":{"bound":["f"]}}}},"origins":{"a":{"same":["a"],"called":["f"]}},"calls":{"f":{"passed":["a"]}}},` +
		`{"digest":"` + digest + `","changes":["a"],"methods":["a"],"opaque_write":true},{"digest":"` + digest + `","reads":["a","a b","\u202e"]}]`))
	f.Add([]byte(`[null,null,null]`))
	f.Fuzz(func(t *testing.T, report []byte) {
		if client.CheckItems(report, maxItems) != nil {
			return
		}
		facts, err := decode(report, 3)
		if err != nil {
			return
		}
		text, err := json.Marshal(facts)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(string(text), unicode.IsControl) {
			t.Errorf("%q", text)
		}
		var p Poison
		var cells []Cell
		var runs []Run
		for i := range facts {
			facts[i].check() // what was let through stays
			cells = append(cells, Cell{ID: string(rune('a' + i)), Facts: &facts[i]})
			runs = append(runs, Run{Cell: cells[i].ID, Facts: &facts[i], Outcome: Outcome(i % 2)})
			p.Skips(&facts[i])
			p.Add(cells[i].ID, &facts[i], Outcome(i%2))
		}
		Sync(cells, runs)
		if again, err := json.Marshal(facts); err != nil || string(again) != string(text) {
			t.Errorf("%s became %s, %v", text, again, err)
		}
	})
}
