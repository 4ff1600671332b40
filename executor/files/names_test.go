package files

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

// twins are names that look like the escaped form of one another.
var twins = []string{"\xff", `\xff`, `\x5cxff`, "\\\xff"}

func TestNamesThatLookEscapedAreDistinguished(t *testing.T) {
	tr := newTree(t)
	for _, folder := range twins {
		must(t, os.Mkdir(filepath.Join(tr.Workdir, folder), 0o755))
		for _, name := range twins {
			must(t, os.WriteFile(filepath.Join(tr.Workdir, folder, name), []byte(folder+"/"+name), 0o600))
		}
	}
	for _, folder := range twins {
		out, err := tr.roots.List(t.Context(), contract.EscapeName(folder), "")
		must(t, err)
		if len(out.Files) != len(twins) {
			t.Fatalf("%q holds %+v", folder, out.Files)
		}
		for _, f := range out.Files {
			st, err := tr.roots.Stat(f.Path)
			must(t, err)
			got, err := readPart(tr.roots, f.Path, st.ETag, 0, 100)
			if want := folder + "/" + contract.UnescapeName(f.Name); err != nil || string(got) != want {
				t.Errorf("%q holds %q, want %q (%v)", f.Path, got, want, err)
			}
		}
		must(t, os.RemoveAll(filepath.Join(tr.Workdir, folder, `\xff`)))
		if _, err := tr.roots.Stat(contract.EscapeName(folder + `/\xff`)); err == nil {
			t.Errorf("another file of %q is taken for one that is gone", folder)
		}
	}
}
