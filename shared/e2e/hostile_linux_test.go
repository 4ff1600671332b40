package e2e

import (
	"io/fs"
	"path/filepath"
	"strings"
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

const (
	mostMemory       = 300       // MB of a relay, whatever is asked of it
	mostHostileText  = 80_000    // characters of an answer
	mostHostileSaved = 400 << 20 // bytes of files on the laptop
)

// allFiles returns the files below dir, with their sizes.
func allFiles(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all[path] = info.Size()
		}
		return err
	}))
	return all
}

// wantOwnFilesOnly checks that all new files are in the relay's folders, are small together and
// have names that can be shown.
func wantOwnFilesOnly(t *testing.T, home string, before map[string]int64) {
	t.Helper()
	total := int64(0)
	for path, size := range allFiles(t, home) {
		name := strings.TrimPrefix(path, home+"/")
		folder, _, _ := strings.Cut(name, "/")
		_, old := before[path]
		switch folder {
		case "saved", "checkpoints", "config", "cache", "data", "own":
			total += size
		default:
			if !old {
				t.Errorf("the relay wrote %q", name)
			}
		}
		wantPlain(t, "a file's name", name)
	}
	if total > mostHostileSaved {
		t.Errorf("%d bytes were saved", total)
	}
}
