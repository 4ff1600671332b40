package plain

import "testing"

func TestWordsOfAShell(t *testing.T) {
	for _, c := range []struct{ word, want, windows string }{
		{"a.py", "a.py", "a.py"},
		{"ä", "ä", "ä"},
		{"my file", "'my file'", `"my file"`},
		{"it's", `'it'\''s'`, `"it's"`},
		{"", "''", `""`},
		{"$x", "'$x'", `"$x"`},
		{`a\b`, `'a\b'`, `a\b`},
	} {
		if got, windows := POSIXWord(c.word), windowsWord(c.word); got != c.want || windows != c.windows {
			t.Errorf("%q is %s, and %s on Windows", c.word, got, windows)
		}
	}
}
