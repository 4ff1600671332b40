package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

func TestAFolderIsMadeAsOftenAsAskedFor(t *testing.T) {
	in := newInbox(t)
	for range 2 {
		for path, want := range map[string]string{
			"new/deep/": "new/deep", "data/": "data", "inside/": "inside", `odd\xff/`: "odd\xff", "/content/c/": "c", "/": "",
		} {
			out, err := in.Start(contract.UploadStart{Path: path})
			if path == "/" {
				if !errors.Is(err, ErrForbidden) {
					t.Errorf("%q: %+v, %v", path, out, err)
				}
				continue
			}
			if in.tree.roots.content && path == "/content/c/" {
				continue // the workdir is not /content here
			}
			if err != nil || out.Status != contract.UploadCommitted || out.Path != contract.EscapeName(filepath.Join(in.workdir, want)) || out.UploadID != "" || out.Missing == nil {
				t.Errorf("%q: %+v, %v", path, out, err)
			}
			if info, err := os.Stat(filepath.Join(in.workdir, want)); err != nil || !info.IsDir() {
				t.Errorf("%q: %v", want, err)
			}
		}
	}
	in.folders(0)
}

func TestNoFolderIsMadeWhereNoFileMayBe(t *testing.T) {
	in := newInbox(t)
	before := everything(t, filepath.Dir(in.workdir))
	for path, want := range map[string]error{
		"a.txt/": ErrNotDir, "a.txt/x/": ErrNotDir, "out/x/": ErrForbidden, "out/": ErrForbidden, "../x/": ErrForbidden,
		"to-state/x/": ErrForbidden, in.secret + "/x/": ErrForbidden, ".x" + partSuffix + "/": ErrForbidden, "null/": ErrForbidden,
	} {
		if out, err := in.Start(contract.UploadStart{Path: path}); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v, want %v", path, out, err, want)
		}
	}
	if after := everything(t, filepath.Dir(in.workdir)); after != before {
		t.Errorf("there is now\n%s", after)
	}
	must(t, os.RemoveAll(in.drive))
	if out, err := in.Start(contract.UploadStart{Path: in.drive + "/x/"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("under a root that is not mounted: %+v, %v", out, err)
	}
}

// A file of /proc tells 0 bytes, so that a copy would be empty and look whole.
func TestAFileThatTheKernelMakesUpIsNotServed(t *testing.T) {
	tr := newTree(t)
	roots, err := Open(tr.workdir, []string{"/proc/sys/kernel", "/sys/devices/system/cpu"}, tr.state)
	must(t, err)
	for _, path := range []string{"/proc/sys/kernel/ostype", "/sys/devices/system/cpu/online"} {
		if st, err := roots.Stat(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %+v, %v", path, st, err)
		}
		if n, err := roots.Read(path, "", 0, make([]byte, 10)); n != 0 || !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %d bytes, %v", path, n, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(tr.workdir, "empty"), nil, 0o600))
	if st, err := roots.Stat("empty"); err != nil || st.ETag == "" {
		t.Errorf("an empty file: %+v, %v", st, err)
	}
}
