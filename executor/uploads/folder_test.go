package uploads

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestCreatingAFolderMayBeRepeated(t *testing.T) {
	in := newInbox(t)
	for range 2 {
		for path, want := range map[string]string{
			"new/deep/": "new/deep", "data/": "data", "inside/": "inside", `odd\xff/`: "odd\xff",
		} {
			out, err := in.Start(contract.UploadStart{Path: path})
			answer := contract.Upload{Status: contract.UploadCommitted, Path: contract.EscapeName(filepath.Join(in.Workdir, want)), Missing: []contract.Range{}}
			if diff := cmp.Diff(answer, out); diff != "" || err != nil {
				t.Errorf("%q: %v %s", path, err, diff)
			}
			if info, err := os.Stat(filepath.Join(in.Workdir, want)); err != nil || !info.IsDir() {
				t.Errorf("%q: %v", want, err)
			}
		}
	}
	in.folders(0)
}
