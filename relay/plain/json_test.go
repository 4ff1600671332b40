package plain

import (
	"encoding/json"
	"testing"
)

func TestJSONIsSafeForATerminalAndDecodesToTheSame(t *testing.T) {
	for _, s := range []string{"plain", "a\x1b[2Jb", "\u009b2J", "\u202egnp", "\x7f\x00", "\U000e0001", "\ue000\U00100000", "x\u200dy\ufe0f", "<ä😀>\n\t\"\\"} {
		for _, indent := range []string{"", "  "} {
			text, err := JSON(map[string]string{"s": s}, indent)
			if err != nil {
				t.Fatal(err)
			}
			if shown := string(text); Text(shown) != shown {
				t.Errorf("%q: a terminal would interpret %q", s, text)
			}
			var back map[string]string
			if err := json.Unmarshal(text, &back); err != nil || back["s"] != s {
				t.Errorf("%q became %q, %v", s, back["s"], err)
			}
		}
	}
	if _, err := JSON(func() {}, ""); err == nil {
		t.Error("a function has JSON")
	}
}
