package transfer

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/tier"
)

// An identical folder that something else made is neither copied nor changed.
func TestAFolderThatExistsWithTheSameFilesIsNotDownloadedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string)
		same   bool
	}{
		"the same":            {func(string) {}, true},
		"another small file":  {func(dir string) { writeText(t, dir+"/a", "A") }, false},
		"another large file":  {func(dir string) { fill(t, dir+"/sub/big", contract.MaxBatchFile+1, 2) }, false},
		"another size":        {func(dir string) { writeText(t, dir+"/a", "aa") }, false},
		"one more file":       {func(dir string) { writeText(t, dir+"/more", "") }, false},
		"one more folder":     {func(dir string) { must(t, os.Mkdir(dir+"/more", 0o755)) }, false},
		"a missing file":      {func(dir string) { must(t, os.Remove(dir+"/a")) }, false},
		"a link to a file":    {func(dir string) { must(t, os.Remove(dir+"/a")); must(t, os.Symlink("b", dir+"/a")) }, false},
		"a link to no file":   {func(dir string) { must(t, os.Symlink("none", dir+"/link")) }, false},
		"a file for a folder": {func(dir string) { must(t, os.RemoveAll(dir+"/sub")); writeText(t, dir+"/sub", "") }, false},
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

// Two runtimes with the same results share the folder; one numbered folder is found again.
func TestAnIdenticalFolderIsFoundUnderItsNumber(t *testing.T) {
	vm := fakevm.Start(t)
	vm.Put("data/a", []byte("a"))
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "data", "a"), "mine")
	c := clientOf(t, vm)
	for i, runtime := range []string{"gpu", "cpu", "tpu"} {
		r, err := Download(t.Context(), c, "data", Local{Dir: dir, Runtime: runtime}, Options{RecordDir: t.TempDir()})
		if err != nil || r.Path != filepath.Join(dir, "data (1)") || (r.Skipped == 1) != (i > 0) {
			t.Errorf("%s: %+v, %v", runtime, r, err)
		}
	}
	wantText(t, filepath.Join(dir, "data", "a"), "mine")
}

// A folder over the bound is not compared, so its bytes are not fetched twice.
func TestATreeOverTheBoundIsNotCompared(t *testing.T) {
	tier.Long(t)
	vm := fakevm.Start(t)
	dir := t.TempDir()
	mine := filepath.Join(dir, "data")
	content := make([]byte, contract.MaxBatchFile)
	const atBound = maxSameSmall / contract.MaxBatchFile
	c := clientOf(t, vm)
	for i := range atBound + 1 {
		name := fmt.Sprint(i)
		vm.Put("data/"+name, content)
		writeText(t, filepath.Join(mine, name), string(content))
		if i < atBound-1 {
			continue
		}
		r, err := Download(t.Context(), c, "data", Local{Dir: dir}, Options{RecordDir: t.TempDir()})
		want := mine
		if i == atBound {
			want += " (1)"
		}
		if err != nil || r.Path != want || r.MovedBytes != r.SizeBytes || (r.Skipped == r.Files) != (i < atBound) {
			t.Errorf("%d files: %+v, %v", i+1, r, err)
		}
	}
}
