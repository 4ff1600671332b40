package files

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestManyFilesAreReadAndFailIndependently(t *testing.T) {
	tr := newTree(t)
	write := func(name string, size int) string {
		path := filepath.Join(tr.Workdir, name)
		must(t, os.WriteFile(path, body(size), 0o600))
		return path
	}
	must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	paths := []string{
		write("one", 1000), "none", "out/key", "to-state/log", ".colab-relay/log", "fifo", "null", "data", "../x",
		write("largest", contract.MaxBatchFile), write("larger", contract.MaxBatchFile+1), write("zero", 0), "a.txt",
	}
	bytes, got, err := tr.roots.ReadMany(t.Context(), paths)
	must(t, err)
	want := []error{nil, ErrNotFound, ErrForbidden, ErrForbidden, ErrForbidden, ErrNotRegular, ErrForbidden, ErrIsDir, ErrForbidden, nil, ErrTooLarge, nil, nil}
	if len(got) != len(paths) {
		t.Fatalf("%d answers about %d files", len(got), len(paths))
	}
	for i, one := range got {
		if !errors.Is(one.Err, want[i]) {
			t.Errorf("%q: %+v, want %v", paths[i], one, want[i])
			continue
		}
		if one.Err != nil {
			continue
		}
		st, err := tr.roots.Stat(paths[i])
		must(t, err)
		if diff := cmp.Diff(Content{Size: st.SizeBytes, ETag: st.ETag, Modified: st.Modified}, one); diff != "" {
			t.Errorf("%q differs from its stat: %s", paths[i], diff)
		}
		content, err := os.ReadFile(filepath.Join(tr.Workdir, filepath.Base(paths[i])))
		must(t, err)
		if sha(bytes[:one.Size]) != sha(content) {
			t.Errorf("%q has other bytes", paths[i])
		}
		bytes = bytes[one.Size:]
	}
	if len(bytes) != 0 {
		t.Errorf("%d bytes are left over", len(bytes))
	}
}
