package notebook

import (
	"errors"
	"strings"
	"testing"
)

// An edit keeps halves of surrogate pairs in what it does not change, in a source of any form, and is
// refused where U+FFFD would take their place.
func TestAnEditKeepsHalvesOfSurrogatePairs(t *testing.T) {
	for name, test := range map[string]struct {
		source string // JSON
		edit   string // from the text that is shown
		want   string // JSON; empty if it is refused
	}{
		"before it":     {`"a\ud800b = 1"`, "x\ufffdb = 1", `"x\ud800b = 1"`},
		"around it":     {`"a\ud800b"`, "x\ufffdy", ""},
		"instead of it": {`"a\ud800b"`, "acb", `"acb"`},
		"a whole pair":  {`"a😀\ud800b"`, "x😀\ufffdb", `"x😀\ud800b"`},
		"a line before": {`["a\n", "b\ud800c\n", "d"]`, "x\nb\ufffdc\nd", `["x\n", "b\ud800c\n", "d"]`},
		"more lines":    {`["a\ud800b"]`, "a\ufffd\nb", `["a\ud800\n","b"]`},
	} {
		d, err := Parse([]byte(`{"cells":[{"cell_type":"raw","metadata":{},"source":` + test.source + `}],"metadata":{},"nbformat":4,"nbformat_minor":4}`))
		if err != nil {
			t.Fatal(err)
		}
		if !d.Cell(0).Halves {
			t.Errorf("%s: no halves are seen", name)
		}
		before := string(d.Bytes())
		err = d.SetSource(0, test.edit, "")
		if test.want == "" {
			if !errors.Is(err, ErrHalves) || string(d.Bytes()) != before {
				t.Errorf("%s: %v, %s", name, err, d.Bytes())
			}
			continue
		}
		if got := string(d.part(d.cells[0].source)); err != nil || strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(test.want, " ", "") {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
}
