package transfer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// FuzzRecords reads any file as the records of an unfinished transfer. What was read ends at a
// line, and no record leads out of the folder.
func FuzzRecords(f *testing.F) {
	const at = `"modified":"2026-11-22T00:00:00Z","local_modified":"2026-11-22T00:00:00Z"`
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"keep",` + at + "}\n"))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"../keep",` + at + "}\n" + `{"name":"k","sha256":"x"`))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":-1,"local":"/etc/passwd",` + at + "}\n\n{}\n"))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"a\\x2f..\\x00",` + at + "}\nnull\n[]\n"))
	modified := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "inner")
		for path, content := range map[string][]byte{
			filepath.Join(base, "keep"): []byte("kept"), filepath.Join(dir, "keep"): []byte("kept"), filepath.Join(dir, hiddenName("n\x00/a", ".done")): text,
		} {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, modified, modified); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		c, err := openCompletedFiles(root, "n", "/a")
		if err != nil {
			t.Fatal(err)
		}
		entry := remoteEntry{File: contract.File{Path: "/a", SizeBytes: 4, Modified: modified}}
		if local, ok := c.find(root, entry); ok && local != "keep" && filepath.Clean(local) != "keep" {
			t.Errorf("%q was taken for a file of the folder", local)
		}
		_ = c.close(root, os.ErrClosed)
		left, err := os.ReadFile(filepath.Join(dir, c.name))
		if err != nil || len(left) > 0 && left[len(left)-1] != '\n' {
			t.Errorf("%q is left of %q, %v", left, text, err)
		}
		o := newOrigin("r", string(text))
		if again, err := json.Marshal(o); err != nil || !json.Valid(again) {
			t.Errorf("%q, %v", again, err)
		}
	})
}
