package uploads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

func TestUploadsWhoseFolderIsDamagedAreDropped(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no upload.json":     func(dir string) error { return os.Remove(filepath.Join(dir, recordFile)) },
		"a torn upload.json": func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 20) },
		"a folder for a file": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, rangesFile)), os.Mkdir(filepath.Join(dir, rangesFile), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			in.send("whole", body(10), true)
			up := in.start("x", body(100), true)
			in.put(up.UploadID, 0, body(50))
			in.stop()
			must(t, damage(filepath.Join(in.State, "uploads", up.UploadID)))
			in.open()
			if _, err := in.Get(t.Context(), up.UploadID, 0); !errors.Is(err, ErrNoUpload) {
				t.Errorf("a damaged upload: %v, want %v", err, ErrNoUpload)
			}
			if out := in.start("whole", body(10), true); out.Status != contract.UploadCommitted {
				t.Errorf("another upload became %+v", out)
			}
			in.send("x", body(100), true)
			in.holds("x", body(100))
		})
	}
}

// The executor is killed just before or just after the file gets its name.
func TestAKillAroundTheRenameIsRecognised(t *testing.T) {
	for _, overwrite := range []bool{false, true} {
		for _, name := range []string{"free", "taken"}[:map[bool]int{false: 1, true: 2}[overwrite]] {
			for _, linked := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", overwrite ", overwrite, ", linked ", linked), func(t *testing.T) {
					in := newInbox(t)
					must(t, os.WriteFile(filepath.Join(in.Workdir, "taken"), []byte("old"), 0o600))
					up := in.start(name, body(100), overwrite)
					in.put(up.UploadID, 0, body(100))
					in.stop()
					one, err := in.get(up.UploadID)
					must(t, err)
					part := in.parts(in.Workdir)[0]
					one.sum = sha(body(100))
					placed, err := one.place(t.Context()) // the commit is never recorded
					must(t, err)
					if linked {
						must(t, os.Link(filepath.Join(in.Workdir, string(placed.Placing)), part))
					}
					in.open()
					out := in.start(name, body(100), overwrite)
					if out.Status != contract.UploadCommitted || out.Path != filepath.Join(in.Workdir, string(placed.Placing)) {
						t.Fatalf("after the kill it is %+v", out)
					}
					in.holds(string(placed.Placing), body(100))
				})
			}
		}
	}
}
