package runs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/relay/transfer"
)

func TestModulesThatChangedSinceTheirUpload(t *testing.T) {
	t.Chdir(t.TempDir())
	var uploaded []transfer.UploadedFile
	add := func(path, sha string) {
		uploaded = append(uploaded, transfer.UploadedFile{Local: path, Remote: "/content/" + filepath.Base(path), SHA256: sha})
	}
	for _, path := range []string{"src/train.py", "src/helpers.py", "src/same.py", "src/pkg/util.py", "src/data.csv", "src/never.py"} {
		path = filepath.FromSlash(path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		text := "import helpers, same\nfrom pkg import util\nimport data, absent\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		add(path, "other")
		if filepath.Base(path) == "same.py" {
			add(path, fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
		}
	}
	add(filepath.FromSlash("src/absent.py"), "other")
	var got []string
	for _, f := range earlierFiles(filepath.FromSlash("src/train.py"), uploaded) {
		got = append(got, filepath.ToSlash(f.Local)+" "+f.Remote)
	}
	if want := []string{"src/pkg/util.py /content/util.py", "src/helpers.py /content/helpers.py"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if found := earlierFiles("none/train.py", uploaded); len(found) > 0 {
		t.Errorf("a folder that does not exist has %v", found)
	}
}
