package plain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

func TestControlSequencesAreRemoved(t *testing.T) {
	for in, want := range map[string]string{
		"ünï 🙂 日本":                                         "ünï 🙂 日本",
		"👩\u200d👧":                                         "👩\u200d👧",
		"\x1b[31mred\x1b[0m":                               "red",
		"\x1b]0;title\atext":                               "text",
		"\x1b]52;c;ZXZpbA==\x1b\\text":                     "text",
		"\u009b31mred":                                     "red",
		"\x1b[3\nline":                                     "\nline",
		"a\x00b\x07c\x08d\x7fe":                            "abcde",
		"over\rwritten":                                    "overwritten",
		"\u202egnp.exe\u202c \u2066x\u2069":                "gnp.exe x",
		"zero\u200bwidth\ufeff\u2060":                      "zerowidth",
		"hidden\U000e0041\U000e0042\U000e0100":             "hidden",
		"bad\xffbyte\x9b2J":                                "bad\ufffdbyte\ufffd2J",
		"👁\ufe0f\u200d🗨\ufe0f 1\ufe0f\u20e3":               "👁\ufe0f\u200d🗨\ufe0f 1\ufe0f\u20e3",
		"un\u0378assigned\ufdd0":                           "un\ufffdassigned\ufffd",
		"\x1b]" + strings.Repeat("x", 2) + "end":           "",
		"\x1b]" + strings.Repeat("x", maxSequence) + "end": strings.Repeat("x", maxSequence) + "end",
	} {
		if got := Text(in); got != want {
			t.Errorf("%.60q becomes %.60q, want %.60q", in, got, want)
		}
	}
}

// Selectors and joiners in a row spell text that a model can read and a person cannot see.
func TestNoRowOfJoinersCarriesHiddenText(t *testing.T) {
	hidden := func(pieces ...string) string { return "A" + strings.Repeat(strings.Join(pieces, ""), 100) + "B" }
	for in, want := range map[string]string{
		hidden("\ufe06", "\ufe09"):                     "AB",
		hidden("\u200c", "\u200d"):                     "AB",
		hidden("\u200d", "\x1b[m", "\u200b", "\ufe0f"): "AB",
		hidden("\u200d", "x"):                          hidden("x"),
		hidden("1", "\ufe0f"):                          hidden("1"),
		hidden("می", "\u200c", "\u200d", "\ufe0f"):     hidden("می", "\u200c"),
		hidden("👁", "\ufe0f", "\ufe0e", "\u200d"):      "A" + strings.Repeat("👁\ufe0f\u200d", 99) + "👁\ufe0fB",
		"👁" + hidden("\ufe0f", "\u200d"):               "👁AB",
		"👁" + hidden("\ufe0f", "\u200d")[1:]:           "👁\ufe0fB",
		"\u200d👧":                                      "👧",
		"👧\n\u200d👧":                                   "👧\n👧",
	} {
		if got := Text(in); got != want {
			t.Errorf("Text: %+q becomes %+.80q, want %+.80q", in[:7], got, want)
		}
		var term Terminal
		shown := ""
		for _, r := range in + "." { // a row may go on in the next event
			shown += term.Filter(string(r))
		}
		if shown = strings.ReplaceAll(shown, "\x1b[m", ""); shown != want+"." {
			t.Errorf("Terminal: %+q is shown as %+.80q, want %+.80q", in[:7], shown, want)
		}
	}
}

// What scripts and emoji need stays: on a terminal too, wherever an event ends.
func TestJoinersStayWhereTheyAreNeeded(t *testing.T) {
	for _, text := range []string{
		"👩\u200d👧", "👁\ufe0f\u200d🗨\ufe0f", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3 #\ufe0f\u20e3", "❤\ufe0f ☎\ufe0e", "©\ufe0f",
		"می\u200cخواهم", "क्\u200dष र\u200d्य", "ශ්\u200dර", "ന്\u200d", "ه\u200d",
	} {
		if got := Text(text); got != text {
			t.Errorf("%+q becomes %+q", text, got)
		}
		var term Terminal
		shown := ""
		for i := range len(text) {
			shown += term.Filter(text[i : i+1])
		}
		if shown += term.Filter("."); shown != text+"." {
			t.Errorf("%+q is shown as %+q", text, shown)
		}
	}
}

func TestALineHasNoBreaksAndABound(t *testing.T) {
	if got := Line("a\nb\tc\r\nd"); got != "a b c d" {
		t.Errorf("%q", got)
	}
	if got := utf8.RuneCountInString(Line(strings.Repeat("ü", MaxLine+1))); got != MaxLine {
		t.Errorf("a line of %d", got)
	}
	if got := utf8.RuneCountInString(Text(strings.Repeat("ü", MaxText+1))); got != MaxText {
		t.Errorf("a text of %d", got)
	}
}

func TestNamesStayDifferentAndVisible(t *testing.T) {
	for name, want := range map[string]string{
		"data.csv": "data.csv", "ünï →🎉": "ünï →🎉", `back\slash "quoted"`: `back\slash "quoted"`, "": "", "a  b/c d": "a  b/c d", "全\u3000角": "全\u3000角",
		"\x1b]0;q\a": `\x1b]0;q\x07`, "x\u202ey": `x\xe2\x80\xaey`, "a\nb\t": `a\x0ab\x09`, "\x01": `\x01`, "a\u200bb": `a\xe2\x80\x8bb`, "a\rb": `a\x0db`,
		strings.Repeat("a", MaxName): strings.Repeat("a", MaxName), strings.Repeat("a", MaxName+1): strings.Repeat("a", MaxName-1) + "…",
	} {
		got := Name(name)
		if got != want || Text(got) != got {
			t.Errorf("Name(%.40q) is %.40q, want %.40q", name, got, want)
		}
	}
	for name, want := range map[string]string{"a.csv": "a.csv", "a b": "“a b”", "a “b”\n": `“a \xe2\x80\x9cb\xe2\x80\x9d\x0a”`, "": "“”", `a\x`: `a\x`} {
		if got := WordName(name); got != want {
			t.Errorf("WordName(%q) is %q, want %q", name, got, want)
		}
	}
}

func TestATerminalKeepsColoursAndItsLine(t *testing.T) {
	in := "\x1b[1;31mred\x1b[m 50%\r60%\b\x1b[K\x1b[2K" + "\x1b[A\x1b[2J\x1b[5;5H\x1b]0;t\a\x1b]52;c;eA==\x1b\\\x1b[?25l\x1b[6n\x1bc\u009b2J\u202e" + "ünd\tdone\n"
	want := "\x1b[1;31mred\x1b[m 50%\r60%\b\x1b[K\x1b[2Künd\tdone\n"
	var whole Terminal
	if got := whole.Filter(in); got != want {
		t.Errorf("in one call: %q", got)
	}
	var b strings.Builder
	var pieces Terminal
	for i := range len(in) { // an event may end inside a sequence or a character
		b.WriteString(pieces.Filter(in[i : i+1]))
	}
	if b.String() != want {
		t.Errorf("byte by byte: %q", b.String())
	}
}

// The text that is held back for an endless sequence is bounded.
func TestAnEndlessSequenceBecomesText(t *testing.T) {
	var term Terminal
	shown := term.Filter("\x1b]0;")
	for range 2 * maxSequence {
		shown += term.Filter("x")
	}
	if len(term.pending) > maxSequence || !strings.HasSuffix(shown, "xxx") {
		t.Errorf("%d bytes are held back, %d shown", len(term.pending), len(shown))
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"\x1b[2J", "\x1b]0;\a", "\u009b", "\xff\x1b", "\u202e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !filename.Visible(r) && r != '\n' && r != '\t' }) || utf8.RuneCountInString(got) > MaxText {
			t.Errorf("%q becomes %q", s, got)
		}
		if (len(Unshown(s)) == 0) != (got == s) && utf8.RuneCountInString(s) <= MaxText {
			t.Errorf("Unshown(%q) is %q, and Text %q", s, string(Unshown(s)), got)
		}
		if again := Text(got); again != got {
			t.Errorf("%q becomes %q, and that %q", s, got, again)
		}
		var term Terminal
		for _, r := range term.Filter(s) {
			if !filename.Visible(r) && !filename.Unknown(r) && !strings.ContainsRune("\x1b\b\n\r\t", r) {
				t.Errorf("%q shows %q", s, r)
			}
		}
	})
}

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
