package transfer

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// An identical folder that something else made is neither copied nor changed.
func TestAFolderThatExistsWithTheSameFilesIsNotDownloadedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string)
		same   bool
	}{
		"the same":           {func(string) {}, true},
		"another small file": {func(dir string) { writeText(t, dir+"/a", "A") }, false},
		"another large file": {func(dir string) { fill(t, dir+"/sub/big", contract.MaxBatchFile+1, 2) }, false},
		"one more file":      {func(dir string) { writeText(t, dir+"/more", "") }, false},
		"a link to a file":   {func(dir string) { must(t, os.Remove(dir+"/a")); must(t, os.Symlink("b", dir+"/a")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			vm := fakevm.Start(t)
			dir := t.TempDir()
			mine := filepath.Join(dir, "data")
			writeText(t, mine+"/a", "a")
			writeText(t, mine+"/b", "a")
			fill(t, mine+"/sub/big", contract.MaxBatchFile+1, 1)
			for _, file := range []string{"a", "b", "sub/big"} {
				text, err := os.ReadFile(filepath.Join(mine, file))
				must(t, err)
				vm.Put("data/"+file, text)
			}
			c.change(mine)
			client := clientOf(t, vm)
			var compared atomic.Bool
			vm.On(func(_ context.Context, r *http.Request) error {
				if r.URL.Path == contract.PathCompare {
					compared.Store(true)
				}
				return nil
			})
			r, err := Download(t.Context(), client, "data", Local{Dir: dir, Runtime: "gpu"}, Options{RecordDir: t.TempDir()})
			must(t, err)
			if compared.Load() {
				t.Error("the VM was told digests of a folder that is not its own")
			}
			if !c.same {
				if r.Path != mine+" (1)" || r.Skipped != 0 {
					t.Errorf("%+v", r)
				}
				wantNames(t, dir, "data", "data (1)")
				return
			}
			if r.Path != mine || r.Skipped != 3 || r.Files != 3 || r.DoneBytes != r.SizeBytes {
				t.Errorf("%+v", r)
			}
			wantNames(t, dir, "data")
		})
	}
}
