package files

import (
	"errors"
	"fmt"
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
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "data/x (1).csv"), body(30), 0o600))
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "data/x.csv"), body(20), 0o600))
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "data/large"), body(hashedAtOnce+1), 0o600))
	tag := func(name string) string {
		st, err := tr.roots.Stat(name)
		must(t, err)
		return st.ETag
	}
	hello := sha([]byte("hello"))
	cases := []struct {
		file contract.ManifestFile
		over contract.CompareState // with overwrite
		want contract.CompareState
		path string
	}{
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: hello}, "same", "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: sha([]byte("other"))}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 6, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5}, "unknown", "unknown", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: tag("a.txt")}, "same", "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: "old", SHA256: hello}, "same", "same", "a.txt"},
		{contract.ManifestFile{Name: "data/x.csv", SizeBytes: 30, SHA256: sha(body(30))}, "absent", "same", "data/x (1).csv"},
		{contract.ManifestFile{Name: "data/large", SizeBytes: hashedAtOnce + 1, SHA256: sha(body(hashedAtOnce + 1)), ETag: tag("data/large")}, "same", "same", "data/large"},
		{contract.ManifestFile{Name: "inside/b.csv", SizeBytes: 5, SHA256: hello}, "same", "same", "inside/b.csv"},
		{contract.ManifestFile{Name: "none", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "none/none", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "data", SizeBytes: 0, SHA256: sha(nil)}, "absent", "absent", ""},
		// Files that are not served are absent.
		{contract.ManifestFile{Name: "out/key", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "../secret/key", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: ".colab-relay/log", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "to-state/log", SizeBytes: 5, SHA256: hello}, "absent", "absent", ""},
		{contract.ManifestFile{Name: "null", SizeBytes: 0, SHA256: sha(nil)}, "absent", "absent", ""},
	}
	for _, overwrite := range []bool{true, false} {
		m := contract.Manifest{Path: tr.Workdir, Overwrite: overwrite}
		for _, tc := range cases {
			m.Files = append(m.Files, tc.file)
		}
		got, err := d.Compare(t.Context(), m)
		must(t, err)
		for i, one := range got.Files {
			want, path := cases[i].want, ""
			if overwrite {
				want = cases[i].over
			}
			if want == contract.StateSame {
				path = filepath.Join(tr.Workdir, cases[i].path)
			}
			if one.State != want || one.Path != path || (one.ETag != "") != (want == contract.StateSame) {
				t.Errorf("%+v, overwrite %v: %+v, want %q at %q", cases[i].file, overwrite, one, want, path)
			}
		}
		if len(got.Files) != len(cases) {
			t.Errorf("%d answers", len(got.Files))
		}
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
	for name, content := range map[string][]byte{"a.py": old, "a (1).py": body(30), "large": large} {
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
		{"a.py", body(30), contract.ReplaceNothing, contract.StateTaken}, // although "a (1).py" has these bytes
		{"a.py", []byte("odd"), contract.ReplaceNothing, contract.StateTaken},
		{"a.py", body(30), sha(old), contract.StateAbsent},
		{"a.py", body(30), other, contract.StateTaken},
		{"link.py", body(30), sha(old), contract.StateTaken},
		{"here/a.py", body(30), sha(old), contract.StateTaken},
		{"here/a.py", old, other, contract.StateSame},
		{"none.py", body(30), other, contract.StateAbsent},
		{"none/none.py", body(30), contract.ReplaceNothing, contract.StateAbsent},
		{"folder", body(30), other, contract.StateTaken},
		{"large", body(30), sha(large), contract.StateAbsent},
		{"large", body(30), other, contract.StateTaken},
		{"null", body(30), other, contract.StateAbsent}, // not served: the upload reports the reason
	} {
		f := contract.ManifestFile{Name: c.name, SizeBytes: int64(len(c.content)), SHA256: sha(c.content), Replaces: c.replaces}
		for _, overwrite := range []bool{false, true} {
			got, err := d.Compare(t.Context(), contract.Manifest{Path: tr.Workdir, Overwrite: overwrite, Files: []contract.ManifestFile{f}})
			if err != nil || got.Files[0].State != c.want {
				t.Errorf("%+v: %+v, %v, want %q", f, got, err, c.want)
			}
		}
	}
}

// A comparison starts to hash a large file in the background and does not wait for it.
func TestALargeFileIsUnknownUntilItWasHashed(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots) // not running yet, so that the file can't be hashed before the first answer
	d.settledAfter = 0
	data := body(hashedAtOnce + 1)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "large"), data, 0o600))
	m := contract.Manifest{Path: tr.Workdir, Files: []contract.ManifestFile{{Name: "large", SizeBytes: int64(len(data)), SHA256: sha(data)}}}
	if got, err := d.Compare(t.Context(), m); err != nil || got.Files[0].State != contract.StateUnknown {
		t.Fatalf("before it is hashed: %+v, %v", got, err)
	}
	runs(t, d.Run)
	if st, err := d.Stat(t.Context(), "large", timeout); err != nil || st.SHA256 != sha(data) {
		t.Fatalf("%+v, %v", st, err)
	}
	if got, err := d.Compare(t.Context(), m); err != nil || got.Files[0].State != contract.StateSame {
		t.Errorf("after it was hashed: %+v, %v", got, err)
	}
}

func TestTheBoundOfAManifestIsChecked(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	m := contract.Manifest{Path: tr.Workdir}
	for i := range contract.MaxManifestFiles {
		m.Files = append(m.Files, contract.ManifestFile{Name: fmt.Sprint(i), SizeBytes: 5, SHA256: sha(nil)})
	}
	if got, err := d.Compare(t.Context(), m); err != nil || len(got.Files) == 0 {
		t.Errorf("at the bound: %d answers, %v", len(got.Files), err)
	}
	m.Files = append(m.Files, m.Files[0])
	if _, err := d.Compare(t.Context(), m); !errors.Is(err, ErrTooMany) {
		t.Errorf("over the bound: %v", err)
	}
	if got, err := d.Compare(t.Context(), contract.Manifest{Path: tr.Workdir}); err != nil || got.Files == nil || len(got.Files) != 0 {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
}
