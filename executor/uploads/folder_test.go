package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

func TestCreatingAFolderMayBeRepeated(t *testing.T) {
	in := newInbox(t)
	for range 2 {
		for path, want := range map[string]string{
			"new/deep/": "new/deep", "data/": "data", "inside/": "inside", `odd\xff/`: "odd\xff", "/content/c/": "c", "/": "",
		} {
			out, err := in.Start(contract.UploadStart{Path: path})
			if path == "/" {
				if !errors.Is(err, files.ErrForbidden) {
					t.Errorf("%q: %+v, %v", path, out, err)
				}
				continue
			}
			if _, err := os.Stat("/content"); err == nil && path == "/content/c/" {
				continue // the workdir is not /content here
			}
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

func TestNoFolderIsCreatedWhereFilesAreForbidden(t *testing.T) {
	in := newInbox(t)
	before := everything(t, filepath.Dir(in.Workdir))
	for path, want := range map[string]error{
		"a.txt/": files.ErrNotDir, "a.txt/x/": files.ErrNotDir, "out/x/": files.ErrForbidden, "out/": files.ErrForbidden, "../x/": files.ErrForbidden,
		"to-state/x/": files.ErrForbidden, in.Secret + "/x/": files.ErrForbidden, ".x" + files.PartSuffix + "/": files.ErrForbidden, "null/": files.ErrForbidden,
	} {
		if out, err := in.Start(contract.UploadStart{Path: path}); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v, want %v", path, out, err, want)
		}
	}
	if after := everything(t, filepath.Dir(in.Workdir)); after != before {
		t.Errorf("there is now\n%s", after)
	}
	must(t, os.RemoveAll(in.Drive))
	if out, err := in.Start(contract.UploadStart{Path: in.Drive + "/x/"}); !errors.Is(err, files.ErrNotFound) {
		t.Errorf("under a root that is not mounted: %+v, %v", out, err)
	}
}
