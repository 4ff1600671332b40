package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func digestsOf(t testing.TB, tr tree) *Digests {
	d := NewDigests(tr.roots)
	runs(t, d.Run)
	return d
}

func TestAManifestIsComparedWithWhatIsThere(t *testing.T) {
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
		// Nothing is told of what is not served.
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

// A large file is hashed in the background, which asking begins.
func TestALargeFileIsUnknownUntilItWasHashed(t *testing.T) {
	tr := newTree(t)
	d := digestsOf(t, tr)
	file := filepath.Join(tr.Workdir, "large")
	must(t, os.WriteFile(file, body(hashedAtOnce+1), 0o600))
	m := contract.Manifest{Path: tr.Workdir, Files: []contract.ManifestFile{{Name: "large", SizeBytes: hashedAtOnce + 1, SHA256: sha(body(hashedAtOnce + 1))}}}
	got, err := d.Compare(t.Context(), m)
	if err != nil || got.Files[0].State != contract.StateUnknown {
		t.Fatalf("at once: %+v, %v", got, err)
	}
	if st, err := d.Stat(t.Context(), file, timeout); err != nil || st.SHA256 == "" {
		t.Fatalf("%+v, %v", st, err)
	}
	end := time.Now().Add(timeout)
	for got.Files[0].State != contract.StateSame && time.Now().Before(end) {
		got, err = d.Compare(t.Context(), m)
		must(t, err)
	}
	if got.Files[0].State != contract.StateSame {
		t.Errorf("hashed: %+v", got)
	}
}

func TestAManifestIsHeldToItsBound(t *testing.T) {
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
