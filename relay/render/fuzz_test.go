package render

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/contract"
)

// FuzzEvents renders any events, one a line, as a whole and as a page. The texts are bounded and
// have no control characters, and nothing is saved outside the folder.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"stream","name":"stdout","text":"a\rb\u001b[2J\n"}`+"\n"+`{"offset":1,"type":"error","ename":"E\u001b","evalue":"v\u0007","traceback":["\u001b[31mx"]}`), 100)
	f.Add([]byte(`{"type":"display_data","display_id":"d","data":{"image/png":"AAAA","text/html":"<b>\u009b"}}`+"\n"+`{"type":"update_display_data","display_id":"d","data":{"../../x":"1"}}`), 500)
	f.Add([]byte(`{"type":"execute_result","data":{"image/png":{"blob":{"number":-1,"sha256":"x","bytes":-5}},"text/plain":["a","b"]}}`), 0)
	f.Add([]byte(`{"type":"gap","bytes":9,"events":3,"cut":"c\u001b[2J"}`+"\n"+`{"type":"clear_output","wait":true}`+"\n"+`{"type":"input_request","prompt":"p\u202e"}`), 5000)
	f.Fuzz(func(t *testing.T, lines []byte, limit int) {
		limit = max(0, limit) % 10_000
		var events []contract.Event
		for line := range strings.Lines(string(lines)) {
			var ev contract.Event
			if json.Unmarshal([]byte(line), &ev) == nil && len(ev.Data) < 10 {
				events = append(events, ev)
			}
		}
		for _, opt := range []Options{{Limit: limit}, {Limit: limit, Page: true}} {
			wantSafe(t, view(t, events, opt), limit)
		}
	})
}

// wantSafe checks the texts of a view: text of a stream, a traceback and a result have their
// line breaks, and everything else is cleaned where it is shown.
func wantSafe(t *testing.T, v View, limit int) {
	t.Helper()
	shown := []string{v.Stdout, v.Stderr, v.Result}
	if v.Error != nil {
		shown = append(shown, v.Error.Traceback)
	}
	for _, text := range shown {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
			t.Errorf("%q is shown", text)
		}
	}
	// A page shows its first event completely.
	if n := texts(v); n > 2*limit+20_000 {
		t.Errorf("%d characters are shown for the limit %d", n, limit)
	}
}
