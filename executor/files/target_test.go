package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/filename"
)

func FuzzResolveNew(f *testing.F) {
	tr := newTree(f)
	for _, seed := range []string{"", "new", "new/deep", "../x", "broken", "out/new", "a.txt/x", `\xff/\xfe`, "to-drive/shortcut/n", "through-top", "/content/x", ".x.colab-part", ".colab-relay/x", "data/", "hop1/..", tr.Workdir + "/n", tr.Drive + "/n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		to, err := tr.roots.Target(path)
		if err != nil {
			return
		}
		real := filepath.Join(to.Folder(), to.Name)
		if within(tr.State, real) || !within(tr.Workdir, real) && !within(tr.Drive, real) && !within(os.TempDir(), real) {
			t.Fatalf("resolveNew(%q) leads to %q", path, real)
		}
		if to.Name == "" || to.Name == "." || to.Name == ".." || len(to.Name) > filename.MaxBytes || strings.ContainsAny(to.Name, "/\x00") || IsPart(to.Name) {
			t.Fatalf("resolveNew(%q) takes the name %q", path, to.Name)
		}
		// The deepest folder that exists is reached without a link.
		dir := to.Folder()
		for !exists(dir) {
			dir = filepath.Dir(dir)
		}
		if clean, err := filepath.EvalSymlinks(dir); err != nil || clean != dir {
			t.Fatalf("resolveNew(%q) goes through a link to %q: %v", path, clean, err)
		}
	})
}
