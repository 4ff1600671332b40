package uploads

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/memorydir"
)

// FuzzFolder opens a folder of uploads with any files, as code on the VM may have written them.
// Opening it and using the upload changes no file of the user's.
func FuzzFolder(f *testing.F) {
	const id = "00112233445566778899aabbccddeeff"
	f.Add([]byte(`{"path":"a","size_bytes":5,"version":"v","folder":"L3RtcA==","name":"YQ=="}`), []byte("0 5\n"), []byte(`{"folder":"L3RtcA==","part":".x.colab-part"}`+"\n"))
	f.Add([]byte(`{"path":"../../keep","size_bytes":1,"version":"v","placing":"a2VlcA==","identity":"x","etag":"e"}`), []byte("0 1\n"), []byte(`{"part":"keep"}`+"\n"+`{"folder":"Lg==","part":"../keep"}`+"\n"))
	f.Add([]byte(`{"size_bytes":-1,"version":""}`), []byte("-1 5\n"), []byte("{"))
	f.Add([]byte("null"), []byte{}, []byte("\n\n"))
	f.Setenv("TMPDIR", memorydir.New(f)) // is a root
	f.Fuzz(func(t *testing.T, record, ranges, leftovers []byte) {
		base, err := filepath.EvalSymlinks(memorydir.New(t))
		must(t, err)
		work, state := filepath.Join(base, "work"), filepath.Join(base, "state")
		must(t, os.MkdirAll(filepath.Join(state, id), 0o700))
		must(t, os.Mkdir(work, 0o700))
		for path, text := range map[string][]byte{
			filepath.Join(state, id, recordFile): record, filepath.Join(state, id, rangesFile): ranges, filepath.Join(state, leftoversFile): leftovers,
			filepath.Join(work, "keep"): []byte("kept"), filepath.Join(base, "keep"): []byte("kept"),
		} {
			must(t, os.WriteFile(path, text, 0o600))
		}
		roots, err := files.Open(work, nil, state, nil)
		must(t, err)
		s, err := Open(roots, state, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		if up, err := s.Get(t.Context(), id, 0); err == nil {
			_, _ = s.Put(up.UploadID, 0, 1, strings.NewReader("x"))
		}
		if one, err := s.get(id); err == nil {
			s.remove(one)
		}
		for _, dir := range []string{work, base} {
			if text, err := os.ReadFile(filepath.Join(dir, "keep")); err != nil || string(text) != "kept" {
				t.Fatalf("%q, %v", text, err)
			}
		}
	})
}
