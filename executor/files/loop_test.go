package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinksThatFormALoopAreMarked(t *testing.T) {
	tr := newTree(t)
	at := func(name string) string { return filepath.Join(tr.Workdir, name) }
	must(t, os.MkdirAll(at("a/sub"), 0o755))
	must(t, os.MkdirAll(at("b"), 0o755))
	for link, target := range map[string]string{
		"a/self": ".", "a/sub/up": "..", "a/sub/top": tr.Workdir, "a/sub/across": "../../b", "b/back": "../a",
		"a/file": "../a.txt", "a/sibling": "sub",
	} {
		must(t, os.Symlink(target, at(link)))
	}
	for folder, want := range map[string]map[string]bool{
		"a":              {"self": true, "sub": false, "file": false, "sibling": false},
		"b":              {"back": false},
		"a/sub/across":   {"back": true},
		"a/sibling":      {"up": true, "top": true, "across": false},
		tr.Workdir + "/": {"loop": false, "a": false, "inside": false},
	} {
		out, err := tr.roots.List(t.Context(), folder, "")
		must(t, err)
		got := map[string]bool{}
		for _, f := range out.Files {
			got[f.Name] = f.Loop
		}
		for name, loop := range want {
			if there, ok := got[name]; !ok || there != loop {
				t.Errorf("in %q, %q is listed %v with loop %v, want %v", folder, name, ok, there, loop)
			}
		}
	}
}
