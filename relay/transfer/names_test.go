package transfer

import (
	"strings"
	"testing"
)

func TestLocalNameIsTheLastPartUnescaped(t *testing.T) {
	for _, c := range []struct{ remote, unix, windows string }{
		{"a.txt", "a.txt", "a.txt"},
		{"/content/sub/a.txt", "a.txt", "a.txt"},
		{"/content/sub/", "sub", "sub"},
		{"", "_", "_"},
		{"/", "_", "_"},
		{"/content/..", "__", "_"},
		{`\xe2\x80\xaegnp.exe`, "_gnp.exe", "_gnp.exe"},
		{`/content/bad\xff\xfe/`, "bad\xff\xfe", "bad_xff_xfe"},
		{`\x5cxff`, `\xff`, "_xff"},
	} {
		if got := localName(c.remote, false); got != c.unix {
			t.Errorf("LocalName(%q) = %q, want %q", c.remote, got, c.unix)
		}
		if got := localName(c.remote, true); got != c.windows {
			t.Errorf("LocalName(%q) on Windows = %q, want %q", c.remote, got, c.windows)
		}
	}
}

func ownName(remote string) string { return localName(remote, onWindows) }

func TestEachEntryOfAFolderGetsItsOwnLocalName(t *testing.T) {
	entries := func(names ...string) []treeFile {
		var out []treeFile
		for _, n := range names {
			out = append(out, treeFile{name: n})
		}
		return out
	}
	for name, c := range map[string]struct {
		in   []string
		fold bool
		want []string
	}{
		"made the same":      {[]string{"x\x00", "x_", "x/"}, false, []string{"x_ (1)", "x_", "x"}},
		"invisible":          {[]string{"x\x1b", "x\u202e", "x_"}, false, []string{"x_ (1)", "x_ (2)", "x_"}},
		"a kept name wins":   {[]string{"a\x00", "a_", "a_ (1)"}, false, []string{"a_ (2)", "a_", "a_ (1)"}},
		"case":               {[]string{"Read.me", "read.me", "READ.ME"}, true, []string{"Read.me", "read (1).me", "READ (2).ME"}},
		"two that are long":  {[]string{strings.Repeat("a", 300), strings.Repeat("a", 301)}, false, []string{strings.Repeat("a", 255), strings.Repeat("a", 251) + " (1)"}},
		"like a part's name": {[]string{"a", "a.part", "a.part.json"}, false, []string{"a", "a.part", "a.part.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := entries(c.in...)
			localNames(got, ownName, c.fold)
			used := map[string]bool{}
			for i := range got {
				n := got[i].names()
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
