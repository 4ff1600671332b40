package transfer

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

func TestLocalName(t *testing.T) {
	long := strings.Repeat("ü", 200)
	for _, c := range []struct{ remote, unix, windows string }{
		{"a.txt", "a.txt", "a.txt"},
		{"/content/sub/a.txt", "a.txt", "a.txt"},
		{"/content/sub/", "sub", "sub"},
		{"", "_", "_"},
		{"/", "_", "_"},
		{".", "_", "_"},
		{"..", "__", "_"},
		{"/content/..", "__", "_"},
		{"...", "...", "_"},
		{".bashrc", ".bashrc", ".bashrc"},
		{"it's \"quoted\" ünïcode", "it's \"quoted\" ünïcode", "it's _quoted_ ünïcode"},
		{"new\nline", "new_line", "new_line"},
		{"tab\x01\x1f", "tab__", "tab__"},
		{"\x1b[2Jx", "_[2Jx", "_[2Jx"},
		{"esc\x1b]0;HA\ad", "esc_]0;HA_d", "esc_]0;HA_d"},
		{"del\x7fc1\u009b", "del_c1_", "del_c1_"},
		{"\u202egnp.exe", "_gnp.exe", "_gnp.exe"},
		{`\xe2\x80\xaegnp.exe`, "_gnp.exe", "_xe2_x80_xaegnp.exe"},
		{"\u200e\u200f\u061c\u2066\u2069", "_____", "_____"},
		{"zero\u200b\u2060\ufeffwidth", "zero___width", "zero___width"},
		{"\u2028\u2029\U000e0041", "___", "___"},
		{"👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم", "👩\u200d👧 می\u200cخواهم"},
		{"nul\x00byte", "nul_byte", "nul_byte"},
		{`back\slash`, `back\slash`, "back_slash"},
		{`..\..\x`, `..\..\x`, ".._.._x"},
		{`C:\x`, `C:\x`, "C__x"},
		{"a:stream", "a:stream", "a_stream"},
		{`what?*<>|`, `what?*<>|`, "what_____"},
		{"dot.", "dot.", "dot_"},
		{"dots. . ", "dots. . ", "dots_"},
		{"space ", "space ", "space_"},
		{" lead", " lead", " lead"},
		{"CON", "CON", "_CON"},
		{"con.txt", "con.txt", "_con.txt"},
		{"Aux .x", "Aux .x", "_Aux .x"},
		{"nul.tar.gz", "nul.tar.gz", "_nul.tar.gz"},
		{"PRN", "PRN", "_PRN"},
		{"CONIN$", "CONIN$", "_CONIN$"},
		{"COM1", "COM1", "_COM1"},
		{"com¹.log", "com¹.log", "_com¹.log"},
		{"LPT9.", "LPT9.", "LPT9_"},
		{"COM10", "COM10", "COM10"},
		{"COMx", "COMx", "COMx"},
		{"console", "console", "console"},
		{"bad\xff\xfe", "bad\xff\xfe", "bad_"},
		{`/content/bad\xff\xfe/`, "bad\xff\xfe", "bad_xff_xfe"},
		{`\x5cxff`, `\xff`, "_x5cxff"},
		{"\xff\x00", "\xff_", "__"},
		{long + ".csv", long[:250] + ".csv", long[:250] + ".csv"},
		{strings.Repeat("a", 256), strings.Repeat("a", 255), strings.Repeat("a", 255)},
		{"a." + strings.Repeat("b", 300), "a." + strings.Repeat("b", 253), "a." + strings.Repeat("b", 253)},
	} {
		if got := LocalName(c.remote, false); got != c.unix {
			t.Errorf("LocalName(%q) = %q, want %q", c.remote, got, c.unix)
		}
		if got := LocalName(c.remote, true); got != c.windows {
			t.Errorf("LocalName(%q) on Windows = %q, want %q", c.remote, got, c.windows)
		}
	}
}

func ownName(remote string) string { return LocalName(remote, onWindows) }

func FuzzLocalName(f *testing.F) {
	for _, seed := range []string{"a.txt", "..", "CON.", "a\x00/..\\b", "\x1b\u202e", `\xe2\x80\xae`, "\xe2\xff\x80\xae", strings.Repeat("é.", 200), "\xff. ", "com0 .x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, remote string) {
		for _, windows := range []bool{false, true} {
			name := LocalName(remote, windows)
			switch {
			case name == "", name == ".", name == "..", len(name) > maxName, windows && !utf8.ValidString(name), strings.ContainsAny(name, "/\x00"),
				strings.ContainsFunc(name, func(r rune) bool { return !plain.Visible(r) }):
				t.Fatalf("LocalName(%q, %v) = %q", remote, windows, name)
			case windows && (strings.ContainsAny(name, `<>:"\|?*`) || strings.TrimRight(name, ". ") != name || isDevice(name)):
				t.Fatalf("LocalName(%q) on Windows = %q", remote, name)
			case safeName(name, windows) != name:
				t.Fatalf("LocalName(%q, %v) = %q is made safe once more", remote, windows, name)
			case checkName(name, windows) != nil && !(len(name) > 1 && name[1] == ':'):
				t.Fatalf("LocalName(%q, %v) = %q is refused: %v", remote, windows, name, checkName(name, windows))
			case len(partName(name)+journalSuffix) > maxName:
				t.Fatalf("the part of %q has the long name %q", name, partName(name))
			}
		}
	})
}

func TestNamesThatLeadOutAreRefused(t *testing.T) {
	for _, name := range []string{
		"..", "../x", "a/../../x", "a/..", "a/../b", "/etc/passwd", "/", ".", "./.", `C:\x`, "c:x", "z:", "a\x00b",
		"new\nline", "sub\x1b/x", "\u202egnp.exe", "zero\u200bwidth",
		strings.Repeat("a", 256), "sub/" + strings.Repeat("é", 128), strings.Repeat("a/", 3000) + "x",
	} {
		for _, windows := range []bool{false, true} {
			if err := checkName(name, windows); !errors.Is(err, ErrForbiddenName) {
				t.Errorf("checkName(%.40q, %v) = %v", name, windows, err)
			}
		}
	}
	for _, name := range []string{
		`..\x`, `a\..\..\x`, `\x`, `\\host\share`, "CON", "sub/nul.txt", "com1", "a:b", "a?", "a*", "a|b", "a<b", `a"b`,
		"dot.", "space ", "sub /x",
	} {
		if err := checkName(name, true); !errors.Is(err, ErrForbiddenName) {
			t.Errorf("checkName(%q) on Windows = %v", name, err)
		}
	}
	for _, name := range []string{"a", "a/b", "./a", "a//b", "ünï code", "it's", ".hidden", "a..b", "..a", "CONSOLE", strings.Repeat("a", 255)} {
		for _, windows := range []bool{false, true} {
			if err := checkName(name, windows); err != nil {
				t.Errorf("checkName(%q, %v) = %v", name, windows, err)
			}
		}
	}
}

func TestNumberedNamesKeepExtensionAndFit(t *testing.T) {
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.txt", 0, "a.txt"},
		{"a.txt", 1, "a (1).txt"},
		{"sub.d/a", 2, "sub.d/a (2)"},
		{".bashrc", 1, ".bashrc (1)"},
		{"x/" + strings.Repeat("a", 251) + ".txt", 10, "x/" + strings.Repeat("a", 246) + " (10).txt"},
	} {
		if got := numbered(c.name, c.i); got != c.want {
			t.Errorf("numbered(%q, %d) = %q, want %q", c.name, c.i, got, c.want)
		}
	}
}

func TestEachEntryOfAFolderGetsALocalNameOfItsOwn(t *testing.T) {
	entries := func(names ...string) []contract.File {
		var out []contract.File
		for _, n := range names {
			out = append(out, contract.File{Name: n})
		}
		return out
	}
	for name, c := range map[string]struct {
		in   []string
		fold bool
		want []string
	}{
		"plain":              {[]string{"a", "b"}, false, []string{"a", "b"}},
		"made the same":      {[]string{"x\x00", "x_", "x/"}, false, []string{"x_ (1)", "x_", "x"}},
		"invisible":          {[]string{"x\x1b", "x\u202e", "x_"}, false, []string{"x_ (1)", "x_ (2)", "x_"}},
		"a kept name wins":   {[]string{"a\x00", "a_", "a_ (1)"}, false, []string{"a_ (2)", "a_", "a_ (1)"}},
		"case":               {[]string{"Read.me", "read.me", "READ.ME"}, true, []string{"Read.me", "read (1).me", "READ (2).ME"}},
		"case counts":        {[]string{"Read.me", "read.me"}, false, []string{"Read.me", "read.me"}},
		"two that are long":  {[]string{strings.Repeat("a", 300), strings.Repeat("a", 301)}, false, []string{strings.Repeat("a", 255), strings.Repeat("a", 251) + " (1)"}},
		"like a part's name": {[]string{"a", "a.part", "a.part.json"}, false, []string{"a", "a.part", "a.part.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := localNames(entries(c.in...), ownName, c.fold)
			used := map[string]bool{}
			for i, n := range got {
				if n.name != c.want[i] {
					t.Errorf("%q becomes %q, want %q", c.in[i], n.name, c.want[i])
				}
				for _, file := range []string{n.name, n.part, n.part + journalSuffix} {
					if used[file] {
						t.Errorf("%q has two uses", file)
					}
					used[file] = true
				}
			}
		})
	}
}

// A hostile folder: counting from one for each of them would take the day.
func TestManyEntriesThatBecomeOneNameAreNumberedFast(t *testing.T) {
	entries := make([]contract.File, maxEntries)
	for i := range entries {
		entries[i].Name = strings.Repeat("x", 300) // cut to 255
	}
	got := localNames(entries, ownName, true)
	used := map[string]bool{}
	for _, n := range got {
		if used[n.name] {
			t.Fatalf("%q has two uses", n.name)
		}
		used[n.name] = true
	}
}

func TestALinkOnTheWayThatLeadsOutIsRefused(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.Symlink(outside, dir+"/out"))
	must(t, os.Mkdir(dir+"/real", 0o755))
	must(t, os.Symlink("real", dir+"/in"))
	root, err := openLocal(dir)
	must(t, err)
	defer root.Close()
	if err := makeFolder(root, "out/sub"); !errors.Is(err, ErrForbiddenName) {
		t.Errorf("a folder behind a link that leads out: %v", err)
	}
	if err := makeFolder(root, "out"); !errors.Is(err, ErrForbiddenName) {
		t.Errorf("the link itself: %v", err)
	}
	must(t, makeFolder(root, "in/sub"))
	must(t, makeFolder(root, "."))
	wantNames(t, outside)
	wantNames(t, dir+"/real", "sub")
}

// On a file system that takes only UTF-8 names stay escaped.
func TestNamesOfBytesAreEscapedWhereTheyMustBe(t *testing.T) {
	root, err := openLocal(t.TempDir())
	must(t, err)
	defer root.Close()
	for _, takes := range []bool{true, false} {
		n := &namer{root: root, bytes: &takes}
		want := map[string]string{`bad\xff`: "bad\xff", `\x5cxff`: `\xff`, "ü": "ü"}
		if !takes {
			want[`bad\xff`] = `bad\xff`
		}
		for remote, local := range want {
			if got := n.name(remote); got != local {
				t.Errorf("%q becomes %q, want %q; bytes are taken: %v", remote, got, local, takes)
			}
		}
	}
	newNamer(root).takesBytes()
	wantNames(t, root.Name())
}

func TestADownloadFolderThatCannotBeOneIsNamed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	must(t, os.Symlink("gone", dir+"/dangling"))
	must(t, os.Symlink(".", dir+"/good"))
	for name, want := range map[string]error{
		"file": ErrLocalPath, "file/below": ErrLocalPath, "dangling": ErrLocalPath, "dangling/below": ErrLocalPath,
		"nul\x00": ErrLocalPath, "good": nil, "new/deep": nil,
	} {
		root, err := openLocal(dir + "/" + name)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
		if err == nil {
			must(t, root.Close())
		}
	}
}
