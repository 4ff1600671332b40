package transfer

import (
	"os"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// A part without a valid journal is a user's file and is not touched.
func TestPartsOfOthersAreNotTouched(t *testing.T) {
	st := contract.FileStat{File: contract.File{SizeBytes: 10}, ETag: "e"}
	for name, files := range map[string]map[string]string{
		"a part alone":      {"a.part": "mine"},
		"a strange journal": {"a.part": "mine", "a.part.json": `{"model": 1}`},
		"a journal alone":   {"a.part.json": "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := openLocal(t.TempDir())
			must(t, err)
			defer root.Close()
			for file, text := range files {
				must(t, root.WriteFile(file, []byte(text), 0o600))
			}
			p, err := openPart(root, "a.part", "/content/a", st, nil)
			must(t, err)
			must(t, p.write(0, []byte("0123456789")))
			must(t, p.close())
			if p.name != "a (1).part" {
				t.Errorf("the part is %q", p.name)
			}
			for file, text := range files {
				if got, err := os.ReadFile(root.Name() + "/" + file); err != nil || string(got) != text {
					t.Errorf("%q contains %q, %v", file, got, err)
				}
			}
		})
	}
}

func TestAPartIsResumedOnlyForTheSameFile(t *testing.T) {
	base := contract.FileStat{File: contract.File{SizeBytes: 10}, ETag: "e", SHA256: strings.Repeat("a", 64)}
	for name, c := range map[string]struct {
		remote string
		change func(*contract.FileStat)
		want   int64
	}{
		"the same":                {"/content/a", func(*contract.FileStat) {}, 4},
		"digest not known yet":    {"/content/a", func(st *contract.FileStat) { st.SHA256 = "" }, 4},
		"another VM, same digest": {"/content/a", func(st *contract.FileStat) { st.ETag = "f" }, 4},
		"another VM, no digest":   {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256 = "f", "" }, 0},
		"another file":            {"/content/b", func(*contract.FileStat) {}, 0},
		"it grew":                 {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 11 }, 4},
		"another file that grew":  {"/content/b", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 11 }, 0},
		"it is shorter":           {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 9 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := openLocal(t.TempDir())
			must(t, err)
			defer root.Close()
			p, err := openPart(root, "a.part", "/content/a", base, nil)
			must(t, err)
			must(t, p.write(0, []byte("0123")))
			must(t, p.close())
			st := base
			c.change(&st)
			again, err := openPart(root, "a.part", c.remote, st, func(etag string) bool { return etag == "e" })
			must(t, err)
			defer again.close()
			if again.name != "a.part" || again.received() != c.want {
				t.Errorf("%q has %d bytes, want %d", again.name, again.received(), c.want)
			}
		})
	}
}
