package partfile

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// linkless is a folder of a file system without hard links.
type linkless struct{ *os.Root }

func (linkless) Link(string, string) error { return errors.ErrUnsupported }

func TestAFileIsPlacedOnlyUnderAFreeName(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, folder := range map[string]Folder{"linked": root, "claimed": linkless{root}} {
		for file, text := range map[string]string{"part": name, "taken": "theirs"} {
			if err := root.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Place(folder, "part", "taken"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s, a taken name: %v", name, err)
		}
		if err := Place(folder, "part", name); err != nil {
			t.Errorf("%s, a free name: %v", name, err)
		}
		for file, want := range map[string]string{name: name, "taken": "theirs"} {
			if got, err := root.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s: %q holds %q, %v", name, file, got, err)
			}
		}
		if _, err := root.Lstat("part"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the part is left: %v", name, err)
		}
	}
}
