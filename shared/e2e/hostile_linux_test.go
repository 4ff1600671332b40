package e2e

import (
	"io/fs"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/harness"
)

// peak returns the largest resident memory of a process so far, in MB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	m, err := harness.MemoryOf(pid)
	must(t, err)
	return int(m.Peak)
}

// inFolder returns the number of files below dir and their total size.
func inFolder(t *testing.T, dir string) (files int, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			files, size = files+1, size+info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, size
}
