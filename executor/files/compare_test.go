package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

func digestsOf(t testing.TB, tr tree) *Digests {
	d := NewDigests(tr.roots)
	runs(t, d.Run)
	return d
}

func TestAManifestIsComparedWithTheFilesOnTheVM(t *testing.T) {
	tr := newTree(t)
	d := digestsOf(t, tr)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "data/large"), body(hashedAtOnce+1), 0o600))
	tag := func(name string) string {
		st, err := tr.roots.Stat(name)
		must(t, err)
		return st.ETag
	}
	hello := sha([]byte("hello"))
	cases := []struct {
		file contract.ManifestFile
		want contract.CompareState
		path string
	}{
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: hello}, "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: sha([]byte("other"))}, "absent", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5}, "unknown", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: tag("a.txt")}, "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: "old", SHA256: hello}, "same", "a.txt"},
		{contract.ManifestFile{Name: "data/large", SizeBytes: hashedAtOnce + 1, SHA256: sha(body(hashedAtOnce + 1)), ETag: tag("data/large")}, "same", "data/large"},
		{contract.ManifestFile{Name: "none", SizeBytes: 5, SHA256: hello}, "absent", ""},
		// Files that are not served are absent.
		{contract.ManifestFile{Name: "out/key", SizeBytes: 5, SHA256: hello}, "absent", ""},
		{contract.ManifestFile{Name: "../secret/key", SizeBytes: 5, SHA256: hello}, "absent", ""},
		{contract.ManifestFile{Name: "to-state/log", SizeBytes: 5, SHA256: hello}, "absent", ""},
	}
	m := contract.Manifest{Path: tr.Workdir}
	for _, tc := range cases {
		m.Files = append(m.Files, tc.file)
	}
	got, err := d.Compare(t.Context(), m)
	must(t, err)
	for i, one := range got.Files {
		want, path := cases[i].want, ""
		if want == contract.StateSame {
			path = filepath.Join(tr.Workdir, cases[i].path)
		}
		if one.State != want || one.Path != path || (one.ETag != "") != (want == contract.StateSame) {
			t.Errorf("%+v: %+v, want %q at %q", cases[i].file, one, want, path)
		}
	}
	if len(got.Files) != len(cases) {
		t.Errorf("%d answers", len(got.Files))
	}
	if _, err := d.Compare(t.Context(), contract.Manifest{Path: "../x", Files: []contract.ManifestFile{{Name: "a"}}}); !errors.Is(err, ErrForbidden) {
		t.Errorf("below a forbidden folder: %v", err)
	}
}

func TestAManifestThatMayReplaceFilesNamesThoseThatAreOthers(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	d.settledAfter = 0
	runs(t, d.Run)
	old, large := []byte("old"), body(hashedAtOnce+1)
	for name, content := range map[string][]byte{"a.py": old, "large": large} {
		must(t, os.WriteFile(filepath.Join(tr.Workdir, name), content, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(tr.Workdir, "folder"), 0o755))
	for link, target := range map[string]string{"link.py": "a.py", "here": "."} {
		must(t, os.Symlink(target, filepath.Join(tr.Workdir, link)))
	}
	if st, err := d.Stat(t.Context(), "large", timeout); err != nil || st.SHA256 == "" {
		t.Fatalf("%+v, %v", st, err)
	}
	other := sha(body(99))
	for _, c := range []struct {
		name     string
		content  []byte
		replaces string
		want     contract.CompareState
	}{
		{"a.py", old, contract.ReplaceNothing, contract.StateSame},
		{"a.py", body(30), contract.ReplaceNothing, contract.StateTaken},
		{"a.py", body(30), sha(old), contract.StateAbsent},
		{"a.py", body(30), other, contract.StateTaken},
		{"link.py", body(30), sha(old), contract.StateTaken},
		{"here/a.py", body(30), sha(old), contract.StateTaken},
		{"none.py", body(30), other, contract.StateAbsent},
		{"folder", body(30), other, contract.StateTaken},
		{"large", body(30), sha(large), contract.StateAbsent},
		{"null", body(30), other, contract.StateAbsent}, // not served: the upload reports the reason
	} {
		f := contract.ManifestFile{Name: c.name, SizeBytes: int64(len(c.content)), SHA256: sha(c.content), Replaces: c.replaces}
		got, err := d.Compare(t.Context(), contract.Manifest{Path: tr.Workdir, Files: []contract.ManifestFile{f}})
		if err != nil || got.Files[0].State != c.want {
			t.Errorf("%+v: %+v, %v, want %q", f, got, err, c.want)
		}
	}
}
