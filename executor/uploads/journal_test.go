package uploads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

func TestADamagedJournalIsUsedUpToTheDamage(t *testing.T) {
	for name, tail := range map[string]string{
		"no number":          "30 x\n",
		"a minus":            "-3 40\n",
		"beyond the end":     "30 101\n",
		"empty":              "30 30\n",
		"an overflow":        "30 99999999999999999999\n",
		"zeros from a crash": "\x00\x00\x00\x00\x00\x00\n",
	} {
		t.Run(name, func(t *testing.T) {
			good := "0 10\n20 30\n"
			got, whole := parseRanges([]byte(good+tail+"90 100\n"), 100)
			want := ranges.Set{{Offset: 0, Length: 10}, {Offset: 20, Length: 10}}
			if diff := cmp.Diff(want, got); diff != "" || whole != int64(len(good)) {
				t.Fatalf("%d bytes are read, want %d: %s", whole, len(good), diff)
			}
		})
	}
}

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
		for _, name := range []string{"free", "taken"} {
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
					if exists(filepath.Join(in.Workdir, name+" (2)")) {
						t.Error("it was placed twice")
					}
				})
			}
		}
	}
}
