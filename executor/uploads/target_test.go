package uploads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
)

func TestNoHostilePathIsUploadedTo(t *testing.T) {
	in := newInbox(t)
	cases := in.Hostile(t, filestest.Refusals{
		Forbidden: files.ErrForbidden, IsDir: files.ErrIsDir, NotDir: files.ErrNotDir, NotRegular: files.ErrNotRegular, BadPath: files.ErrBadPath,
	})
	for path, want := range map[string]error{
		"/":                                    files.ErrIsDir,
		"fresh/../x":                           files.ErrForbidden,
		in.Secret + "/new":                     files.ErrForbidden,
		"/new":                                 files.ErrForbidden,
		"out/new":                              files.ErrForbidden,
		"broken-out":                           files.ErrForbidden,
		"broken-state":                         files.ErrForbidden,
		"broken-up":                            files.ErrNotFound,
		".colab-relay/new":                     files.ErrForbidden,
		"to-state/new":                         files.ErrForbidden,
		".x" + files.PartSuffix:                files.ErrForbidden,
		".x" + files.PartSuffix + "/y":         files.ErrForbidden,
		strings.Repeat("b", 256) + "/x":        files.ErrBadPath,
		"fresh/" + strings.Repeat(`\xff`, 256): files.ErrBadPath,
	} {
		cases[path] = want
	}
	must(t, os.Symlink("../secret/new", filepath.Join(in.Workdir, "broken-out")))
	must(t, os.Symlink(".colab-relay/new", filepath.Join(in.Workdir, "broken-state")))
	must(t, os.Symlink("nope/../../secret/new", filepath.Join(in.Workdir, "broken-up")))
	before := everything(t, filepath.Dir(in.Workdir))
	for path, want := range cases {
		t.Run(fmt.Sprintf("%.60q", path), func(t *testing.T) {
			for _, overwrite := range []bool{false, true} {
				out, err := in.Start(contract.UploadStart{Path: path, SizeBytes: 1, Version: "x", Overwrite: overwrite})
				if !errors.Is(err, want) || out.UploadID != "" {
					t.Errorf("overwrite %v: %+v, %v, want %v", overwrite, out, err, want)
				}
			}
		})
	}
	if after := everything(t, filepath.Dir(in.Workdir)); after != before {
		t.Errorf("refused uploads left\n%s\nwhere there was\n%s", after, before)
	}
}

func TestFilesWithUnusualNamesAreUploaded(t *testing.T) {
	in := newInbox(t)
	for _, name := range []string{" lead and trail ", `quo"te's`, "new\nline", "ünï→🎉", "bad\xff\xfename", "-rf *", "...", ".hidden", strings.Repeat("é", 127)} {
		out := in.send(contract.EscapeName("odd/"+name+"/"+name), body(20), false)
		in.holds("odd/"+name+"/"+name, body(20))
		if stat, err := in.roots.Stat(out.Path); err != nil || stat.SizeBytes != 20 {
			t.Errorf("the path answered, %q, is %+v, %v", out.Path, stat, err)
		}
	}
}

// If Drive is not mounted, a file must not be written to the VM's disk instead.
func TestAnUnmountedRootIsNeverCreated(t *testing.T) {
	in := newInbox(t)
	must(t, os.RemoveAll(in.Drive))
	for _, path := range []string{in.Drive + "/x", in.Drive + "/deep/x", in.Drive, "to-drive/x"} {
		if _, err := in.Start(contract.UploadStart{Path: path, SizeBytes: 1, Version: "x"}); !errors.Is(err, files.ErrNotFound) {
			t.Errorf("upload to %q: %v, want %v", path, err, files.ErrNotFound)
		}
	}
	if _, err := os.Stat(in.Drive); err == nil {
		t.Error("the root was made")
	}
}

// An upload continues after Drive was unmounted and mounted again.
func TestAnUploadWaitsForItsRoot(t *testing.T) {
	in := newInbox(t)
	up := in.start(in.Drive+"/x", body(100), false)
	in.put(up.UploadID, 0, body(50))
	must(t, os.Rename(in.Drive, in.Drive+"-away"))
	if _, err := in.tryPut(up.UploadID, 50, body(100)[50:]); !errors.Is(err, files.ErrNotFound) {
		t.Fatalf("put without its root: %v, want %v", err, files.ErrNotFound)
	}
	if out, err := in.Start(contract.UploadStart{Path: in.Drive + "/x", SizeBytes: 100, Version: sha(body(100))}); !errors.Is(err, files.ErrNotFound) {
		t.Fatalf("start without its root: %+v, %v", out, err)
	}
	must(t, os.Rename(in.Drive+"-away", in.Drive))
	if out := in.start(in.Drive+"/x", body(100), false); out.ReceivedBytes != 50 {
		t.Fatalf("back again it holds %d bytes, want 50", out.ReceivedBytes)
	}
	in.put(up.UploadID, 50, body(100)[50:])
	_, err := in.commit(up.UploadID, body(100))
	must(t, err)
	in.holds(in.Drive+"/x", body(100))
}
