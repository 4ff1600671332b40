package export

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Readers of a document, also in a terminal, get no control character and no hidden text. A
// notebook keeps them as escapes, so that they mean what they did.
func TestDocumentsHaveNoHiddenCharacters(t *testing.T) {
	const hidden = "\u009b31m \x1b]0;t\a \u202e \u2028 \u200b \U000e0041 \ue000 \u200d"
	payload := func(text string) json.RawMessage {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	runs := []Run{{Execution: contract.Execution{ExecutionID: "e", Status: "timed_out" + hidden, Reason: "late" + hidden}, Runtime: "r" + hidden, Name: "n" + hidden, Code: "x = '" + hidden + "'", Events: []contract.Event{
		{Type: contract.EventStream, Name: contract.Stdout, Text: "out" + hidden + strings.Repeat("long ", 20_000) + "end\n"},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"text/plain": payload("display" + hidden)}},
		{Type: contract.EventError, EName: "E" + hidden, EValue: hidden, Traceback: []string{"traceback" + hidden}},
	}}}
	for _, name := range []string{"x.md", "x.ipynb", "x.py"} {
		path := filepath.Join(t.TempDir(), name)
		if err := Write(t.Context(), path, runs, false); err != nil {
			t.Fatal(err)
		}
		got := readFile(t, path)
		shown := got
		if name == "x.py" { // the program itself must stay as it ran
			shown = strings.Replace(got, hidden, "", 1)
		}
		if left := plain.Unshown(shown); len(left) > 0 {
			t.Errorf("%s has %q", name, left)
		}
		if name == "x.md" && !(strings.Contains(got, "Characters of this code that are not shown: 9.") && strings.Contains(got, "long end") && strings.Contains(got, "traceback")) {
			t.Errorf("%s", got)
		}
		if name == "x.ipynb" {
			doc, err := notebook.Parse([]byte(got))
			if err != nil || doc.Cell(0).Source != runs[0].Code || !strings.Contains(got, `\ud`) {
				t.Errorf("%v: %.400q", err, got)
			}
		}
	}
}
