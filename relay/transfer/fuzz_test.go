package transfer

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
)

// FuzzRecords reads any file as the records of an unfinished transfer. What was read ends at a
// line, and no record leads out of the folder. The folder is made once: making it for each input
// would take most of the time.
func FuzzRecords(f *testing.F) {
	const at = `"modified":"2026-11-22T00:00:00Z","local_modified":"2026-11-22T00:00:00Z"`
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"keep",` + at + "}\n"))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"../keep",` + at + "}\n" + `{"name":"k","sha256":"x"`))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":-1,"local":"/etc/passwd",` + at + "}\n\n{}\n"))
	f.Add([]byte(`{"name":"keep","size_bytes":4,"modified":"2026-11-22T00:00:00Z","sha256":"` + strings.Repeat("0a", 32) + `","etag":"e"}` + "\n"))
	f.Add([]byte(`{"remote_path":"/a","size_bytes":4,"local":"a\\x2f..\\x00",` + at + "}\nnull\n[]\n"))
	modified := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	base := memorydir.New(f)
	for _, name := range []string{"keep", "inner/keep"} {
		file := filepath.Join(base, name)
		must(f, os.MkdirAll(filepath.Dir(file), 0o700))
		must(f, os.WriteFile(file, []byte("kept"), 0o600))
		must(f, os.Chtimes(file, modified, modified))
	}
	root, err := os.OpenRoot(filepath.Join(base, "inner"))
	must(f, err)
	f.Cleanup(func() { root.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &completedFiles{files: map[string]completedFile{}}
		valid := readLines(bytes.NewReader(text), c.accept)
		if valid < 0 || valid > int64(len(text)) || valid > 0 && text[valid-1] != '\n' {
			t.Fatalf("%d bytes of %q are kept", valid, text)
		}
		entry := remoteEntry{File: contract.File{Path: "/a", SizeBytes: 4, Modified: modified}}
		if local, ok := c.find(root, entry); ok && local != "keep" && filepath.Clean(local) != "keep" {
			t.Errorf("%q was taken for a file of the folder", local)
		}
		sent := &sentFiles{files: map[string]sentFile{}, room: maxRecordBytes}
		if valid := readLines(bytes.NewReader(text), sent.accept); sent.room < maxRecordBytes-valid || sent.room > maxRecordBytes {
			t.Errorf("there is room for %d bytes after %d", sent.room, valid)
		}
		info, err := root.Lstat("keep")
		must(t, err)
		for key := range sent.files {
			if found, ok := sent.find(key, info); ok && (len(found.SHA256) != 64 || found.Size != 4) {
				t.Errorf("%+v was taken for the record of a file of 4 bytes", found)
			}
		}
		o := newOrigin("r", string(text))
		if again, err := json.Marshal(o); err != nil || !path.IsAbs(o.Remote) || !utf8.Valid(again) {
			t.Errorf("%q, %v", again, err)
		}
	})
}
