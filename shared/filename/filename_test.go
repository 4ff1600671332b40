package filename

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	long := strings.Repeat("ü", 200)
	for _, c := range []struct{ name, unix, windows string }{
		{"a.txt", "a.txt", "a.txt"},
		{"", "_", "_"},
		{".", "_", "_"},
		{"..", "__", "_"},
		{"a/b", "a_b", "a_b"},
		{"it's \"quoted\" ünïcode", "it's \"quoted\" ünïcode", "it's _quoted_ ünïcode"},
		{"new\nline", "new_line", "new_line"},
		{"\x1b[2Jx", "_[2Jx", "_[2Jx"},
		{"del\x7fc1\u009b", "del_c1_", "del_c1_"},
		{"\u202egnp.exe", "_gnp.exe", "_gnp.exe"},
		{"👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم"},
		{"a\u200db\u200c👁\n\u200d👁", "a_b_👁__👁", "a_b_👁__👁"},
		{`back\slash`, `back\slash`, "back_slash"},
		{`what?*<>|`, `what?*<>|`, "what_____"},
		{"dot.", "dot.", "dot_"},
		{"con.txt", "con.txt", "_con.txt"},
		{"CONIN$", "CONIN$", "_CONIN$"},
		{"com¹.log", "com¹.log", "_com¹.log"},
		{"LPT9.", "LPT9.", "LPT9_"},
		{"\xff\x00", "\xff_", "__"},
		{long + ".csv", long[:250] + ".csv", long[:250] + ".csv"},
		{strings.Repeat("a", 256), strings.Repeat("a", 255), strings.Repeat("a", 255)},
	} {
		if got := Clean(c.name, false); got != c.unix {
			t.Errorf("Clean(%q) = %q, want %q", c.name, got, c.unix)
		}
		if got := Clean(c.name, true); got != c.windows {
			t.Errorf("Clean(%q) on Windows = %q, want %q", c.name, got, c.windows)
		}
	}
}

func TestNumberedNamesKeepTheirExtensionAndFit(t *testing.T) {
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.txt", 0, "a.txt"},
		{"a.txt", 1, "a (1).txt"},
		{".bashrc", 1, ".bashrc (1)"},
		{"a.tar.gz", 2, "a.tar (2).gz"},
		{strings.Repeat("é", 127), 1, strings.Repeat("é", 125) + " (1)"},
		{strings.Repeat("é", 125) + ".csv", 1, strings.Repeat("é", 123) + " (1).csv"},
		{"x/" + strings.Repeat("a", 251) + ".txt", 10, "x/" + strings.Repeat("a", 246) + " (10).txt"},
	} {
		if got := Numbered(c.name, c.i); got != c.want {
			t.Errorf("Numbered(%q, %d) = %q, want %q", c.name, c.i, got, c.want)
		}
	}
}

// Checkpoints and kernel states have these names on disk: they must be found again.
func TestUniqueNamesNeverChange(t *testing.T) {
	for name, want := range map[string]string{
		"train":                  "train",
		"Train":                  "train.e99c90db87c0",
		"a/b":                    "a_b.c14cddc033f6",
		"../../etc/passwd":       "______etc_passwd.3754d6cb3a38",
		"":                       ".e3b0c44298fc",
		"bad\xff":                "bad_.69f5f0e0fa0f",
		"con":                    "con.1143da2bc54c",
		"com1":                   "com1.957a49c3e803",
		strings.Repeat("x", 80):  strings.Repeat("x", 80),
		strings.Repeat("x", 300): strings.Repeat("x", 80) + ".0d4e2ca9e9cb",
	} {
		if got := Unique(name); got != want {
			t.Errorf("Unique(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestIDsFromAnotherMachineStayInTheirFolder(t *testing.T) {
	for id, want := range map[string]string{
		"e-1.x": "e-1.x", "E_1": "E_1", "../../etc/passwd": "_.._etc_passwd", "..": "_", "": "_", `a\b`: "a_b", "C:x": "C_x",
		"é": "_", "con": "_con", "a.": "a_", strings.Repeat("x", 300): strings.Repeat("x", 100),
	} {
		if got := ID(id); got != want {
			t.Errorf("ID(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestPathsThatLeaveTheirFolderAreRefused(t *testing.T) {
	for _, name := range []string{
		"..", "../x", "a/../../x", "a/..", "a/../b", "/etc/passwd", "/", ".", "./.", `C:\x`, "c:x", "z:", "a\x00b",
		"new\nline", "sub\x1b/x", "\u202egnp.exe", "zero\u200bwidth",
		strings.Repeat("a", 256), "sub/" + strings.Repeat("é", 128), strings.Repeat("a/", 3000) + "x",
	} {
		for _, windows := range []bool{false, true} {
			if CheckPath(name, windows) == nil {
				t.Errorf("CheckPath(%.40q, %v) accepts it", name, windows)
			}
		}
	}
	for _, name := range []string{
		`..\x`, `a\..\..\x`, `\x`, `\\host\share`, "CON", "sub/nul.txt", "com1", "a:b", "a?", "a*", "a|b", "a<b", `a"b`,
		"dot.", "space ", "sub /x",
	} {
		if CheckPath(name, true) == nil {
			t.Errorf("CheckPath(%q) on Windows accepts it", name)
		}
	}
	for _, name := range []string{"a", "a/b", "./a", "a//b", "ünï code", "it's", ".hidden", "a..b", "..a", "CONSOLE", strings.Repeat("a", 255)} {
		for _, windows := range []bool{false, true} {
			if err := CheckPath(name, windows); err != nil {
				t.Errorf("CheckPath(%q, %v) = %v", name, windows, err)
			}
		}
	}
}

func TestVisible(t *testing.T) {
	for r, want := range map[rune]bool{
		'a': true, ' ': true, 'ü': true, '日': true, '🙂': true, '\u200d': true, utf8.RuneError: true,
		'\n': false, '\t': false, '\r': false, 0: false, 0x1b: false, 0x7f: false, 0x9b: false,
		'\u202e': false, '\u2069': false, '\u200b': false, '\ufeff': false, '\u2028': false, 0xe0041: false,
		'\u00ad': false, '\u034f': false, '\u115f': false, '\u17b4': false, '\u180b': false, '\u3164': false, '\ufe00': false, '\ufe0d': false, '\uffa0': false,
		'\ufff0': false, 0x1bca0: false, 0x1d173: false, 0x1d17a: false, '\ufe0f': true, '\u200c': true, '\u2800': true, 'ᅡ': true, 0x1d17b: true,
		'\ue000': false, 0xf0000: false, 0x10fffd: false, '\u0378': false, '\ufdd0': false, 0x1fae9: true, '\u0600': true, 0x13430: false, 0x1d159: false,
	} {
		if Visible(r) != want {
			t.Errorf("Visible(%q) is %v", r, !want)
		}
	}
}

func TestUnknown(t *testing.T) {
	for r, want := range map[rune]bool{'a': false, '\ue000': true, 0x10fffd: true, '\u0378': true, '\ufdd0': true, 0x1fae9: false, '\u200b': false, 0x1b: false, 0xe0002: false, utf8.RuneError: false} {
		if Unknown(r) != want || want && Visible(r) {
			t.Errorf("Unknown(%U) is %v", r, !want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"a.txt", "..", "CON.", "a\x00/..\\b", "\x1b\u202e", "\xe2\xff\x80\xae", strings.Repeat("é.", 200), "\xff. ", "com0 .x", "é\U0001f600"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, windows := range []bool{false, true} {
			got := Clean(name, windows)
			switch {
			case got == "", got == ".", got == "..", len(got) > MaxBytes, len(utf16.Encode([]rune(got))) > MaxBytes, strings.ContainsAny(got, "/\x00"),
				strings.ContainsFunc(got, func(r rune) bool { return !Visible(r) }):
				t.Fatalf("Clean(%q, %v) = %q", name, windows, got)
			case windows && (!utf8.ValidString(got) || strings.ContainsAny(got, `<>:"\|?*`) || strings.TrimRight(got, ". ") != got || isDevice(got)):
				t.Fatalf("Clean(%q) on Windows = %q", name, got)
			case Clean(got, windows) != got:
				t.Fatalf("Clean(%q, %v) = %q, which Clean changes again", name, windows, got)
			}
			if err := CheckPath(got, windows); err != nil && !(len(got) > 1 && got[1] == ':') {
				t.Fatalf("Clean(%q, %v) = %q, which CheckPath refuses: %v", name, windows, got, err)
			}
		}
	})
}

func TestObeyed(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".envrc": true, ".mcp.json": true, ".vscode": true, ".x": true, "\u200d.env": true, ".g\u200cit": true, ".git. .": true,
		"CLAUDE.md": true, "claude.MD": true, "CLAUDE.md. ": true, "CLA\u200dUDE.md": true, "AGENTS.md": true, "agentſ.md": true, "gemini.md": true, "CLAUDE.local.md": true,
		"opencode.json": true, "GIT~1": true, "git~12": true, "MCP~1.JSO": true, "GI7EBA~1": true,
		"": false, "git": false, "a.git": false, "README.md": false, "CLAUDE.md.txt": false, "my CLAUDE.md": false, "CLAUDE": false, "agents.mdx": false,
		"env": false, "~": false, "a~": false, "file~": false, "report~1.html": false, "longname~1": false, "conftest.py": false, "Makefile": false, " .git": false,
	} {
		if Obeyed(name) != want {
			t.Errorf("Obeyed(%q) is %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"HEAD": true, "head": true, "HEAD. ": true, "HE\u200dAD": true, ".git": true, "HEAD.md": false, "config": false, "ahead": false} {
		if ObeyedFile(name) != want {
			t.Errorf("ObeyedFile(%q) is %v", name, !want)
		}
	}
	if Obeyed("HEAD") {
		t.Error("a folder named HEAD is left out")
	}
	for path, want := range map[string]string{"a/b": "", "./a": "", ".": "", "a/.b/c": ".b", "a/CLAUDE.md": "CLAUDE.md", ".a/.b": ".a"} {
		if got := ObeyedPart(path); got != want {
			t.Errorf("ObeyedPart(%q) is %q, want %q", path, got, want)
		}
	}
}

func TestWhatOnlyAShellReplacesIsNoName(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("USERPROFILE", "/home/u")
	for path, want := range map[string]string{
		"~": "/home/u", "~/": "/home/u/", "~/a/b": "/home/u/a/b", "": "", "a/~/b": "a/~/b", "./~/a": "./~/a", "./$HOME": "./$HOME", "x~": "x~",
		"Foo$Bar.class": "Foo$Bar.class", "$1": "$1", "100%": "100%", "%20a%20": "%20a%20", "/a/%E4%BD%A0": "/a/%E4%BD%A0", "log-%Y-%m": "log-%Y-%m", "myfile:1": "myfile:1",
		"~bob/x": "!", "~bob": "!", "$HOME/x": "!", "/home/$USER/x": "!", "a/${RUN}.csv": "!", "a_${RUN}.csv": "!", "$(pwd)/x": "!", "$env:TEMP/x": "!",
		"%USERPROFILE%/x": "!", `C:\Users\%USERNAME%\x`: "!", "file:///content/x": "!", "FILE:x": "!", "~/$RUN": "!",
	} {
		got, err := Typed(path)
		if refused := errors.Is(err, ErrNotation); refused != (want == "!") || !refused && (err != nil || got != want) {
			t.Errorf("%q is %q, %v; want %q", path, got, err, want)
		}
	}
}
