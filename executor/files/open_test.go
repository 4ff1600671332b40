package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Files of /proc report 0 bytes, so a copy would be empty and look complete.
func TestAFileThatTheKernelGeneratesIsNotServed(t *testing.T) {
	tr := newTree(t)
	roots, err := Open(tr.Workdir, []string{"/proc/sys/kernel", "/sys/devices/system/cpu"}, tr.State, nil)
	must(t, err)
	for _, path := range []string{"/proc/sys/kernel/ostype", "/sys/devices/system/cpu/online"} {
		if st, err := roots.Stat(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %+v, %v", path, st, err)
		}
		if got, err := readPart(roots, path, "", 0, 10); len(got) != 0 || !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "empty"), nil, 0o600))
	if st, err := roots.Stat("empty"); err != nil || st.ETag == "" {
		t.Errorf("an empty file: %+v, %v", st, err)
	}
}
