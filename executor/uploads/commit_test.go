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
	"colabrelay/shared/ranges"
)

// A file that appears at the target after the start is replaced only on request, anything
// else never.
func TestAFileThatAppearsAtTheTargetIsKept(t *testing.T) {
	appear := map[string]func(string) error{
		"a folder":   func(p string) error { return os.Mkdir(p, 0o700) },
		"a link out": func(p string) error { return os.Symlink("../secret/key", p) },
		"a file":     func(p string) error { return os.WriteFile(p, []byte("theirs"), 0o600) },
	}
	for name, make := range appear {
		for _, overwrite := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", overwrite ", overwrite), func(t *testing.T) {
				in := newInbox(t)
				file := filepath.Join(in.Workdir, "x")
				up := in.start("x", body(100), overwrite)
				in.put(up.UploadID, 0, body(100))
				must(t, make(file))
				before, err := os.Lstat(file)
				must(t, err)
				out, err := in.commit(up.UploadID, body(100))
				after, lstatErr := os.Lstat(file)
				must(t, lstatErr)
				switch {
				case overwrite && name == "a file":
					must(t, err)
					in.holds("x", body(100))
				case overwrite && !errors.Is(err, files.ErrIsDir) && !errors.Is(err, files.ErrNotRegular):
					t.Errorf("committed over it: %+v, %v", out, err)
				case !overwrite && !errors.Is(err, ErrTaken):
					t.Errorf("committed beside it: %+v, %v", out, err)
				default:
					if !os.SameFile(before, after) {
						t.Error("it was replaced")
					}
				}
				in.holds(in.Secret+"/key", []byte("hello"))
			})
		}
	}
}

// A folder that is replaced by a link during the upload is not followed.
func TestAFolderSwappedDuringAnUploadIsNotWrittenThrough(t *testing.T) {
	for name, link := range map[string]string{"out": "../secret", "to the state dir": ".colab-relay"} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			up := in.start("data/x", body(100), true)
			in.put(up.UploadID, 0, body(50))
			must(t, os.Rename(filepath.Join(in.Workdir, "data"), filepath.Join(in.Workdir, "moved")))
			must(t, os.Symlink(link, filepath.Join(in.Workdir, "data")))
			if err := in.tryPut(up.UploadID, 50, body(100)[50:]); !errors.Is(err, ErrNoUpload) {
				t.Errorf("put through the link: %v, want %v", err, ErrNoUpload)
			}
			if _, err := in.begin(contract.UploadStart{Path: "data/x", SizeBytes: 100, Version: sha(body(100)), Overwrite: true}); !errors.Is(err, files.ErrForbidden) {
				t.Errorf("started again: %v", err)
			}
			if behind := filepath.Join(in.Workdir, link); len(in.parts(behind)) > 0 || exists(filepath.Join(behind, "x")) {
				t.Error("a file is behind the link")
			}
		})
	}
}

// The part file is in a folder in which everybody on the VM may write.
func TestAReplacedPartFileIsNotWrittenTo(t *testing.T) {
	for name, swap := range map[string]func(in *inbox, part string) error{
		"removed":          func(in *inbox, part string) error { return nil },
		"a link out":       func(in *inbox, part string) error { return os.Symlink(in.Secret+"/hundred", part) },
		"a name of a file": func(in *inbox, part string) error { return os.Link(in.Workdir+"/hundred", part) },
		"of another size":  func(in *inbox, part string) error { return os.WriteFile(part, body(99), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			victims := []string{in.Workdir + "/hundred", in.Secret + "/hundred"}
			for _, file := range victims {
				must(t, os.WriteFile(file, []byte(strings.Repeat("v", 100)), 0o600))
			}
			up := in.start("x", body(100), false)
			in.put(up.UploadID, 0, body(50))
			part := in.parts(in.Workdir)[0]
			must(t, os.Remove(part))
			must(t, swap(in, part))
			if err := in.tryPut(up.UploadID, 50, body(100)[50:]); !errors.Is(err, ErrNoUpload) {
				t.Errorf("a part of it: %v", err)
			}
			up = in.start("x", body(100), false)
			in.put(up.UploadID, 0, body(100))
			_, err := in.commit(up.UploadID, body(100))
			must(t, err)
			in.holds("x", body(100))
			for _, file := range victims {
				in.holds(file, []byte(strings.Repeat("v", 100)))
			}
		})
	}
}

// sendReplacing uploads and commits data over a file of which replaces tells the digest.
func (in *inbox) sendReplacing(path string, data []byte, replaces string) (contract.Upload, error) {
	in.t.Helper()
	up, err := in.begin(contract.UploadStart{Path: path, SizeBytes: int64(len(data)), Version: sha(data), Replaces: replaces})
	must(in.t, err)
	in.put(up.UploadID, 0, data)
	return in.commit(up.UploadID, data)
}

func TestAnUploadReplacesOnlyTheFileThatItNames(t *testing.T) {
	old, data := []byte("old"), body(1000)
	for name, c := range map[string]struct {
		replaces string
		there    []byte // nil for no file
		want     error
	}{
		"the named file":            {sha(old), old, nil},
		"a file that changed since": {sha([]byte("older")), old, ErrTaken},
		"a deleted file":            {sha(old), nil, nil},
		"no file":                   {contract.ReplaceNothing, nil, nil},
		"any file":                  {contract.ReplaceNothing, old, ErrTaken},
		"the uploaded content":      {contract.ReplaceNothing, data, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			file := filepath.Join(in.Workdir, "x.py")
			if c.there != nil {
				must(t, os.WriteFile(file, c.there, 0o600))
				must(t, os.Chmod(file, 0o751))
			}
			out, err := in.sendReplacing("x.py", data, c.replaces)
			if !errors.Is(err, c.want) {
				t.Fatalf("%+v, %v, want %v", out, err, c.want)
			}
			if c.want != nil {
				if got, err := os.ReadFile(file); err != nil || string(got) != string(c.there) {
					t.Errorf("the file holds %q, %v", got, err)
				}
				return
			}
			in.holds("x.py", data)
			if info, err := os.Stat(file); c.there != nil && (err != nil || info.Mode().Perm() != 0o751) {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if again, err := in.sendReplacing("x.py", data, c.replaces); err != nil || again.Path != file {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// The file changes after it was hashed.
func TestAFileThatChangesJustBeforeItIsReplacedIsKept(t *testing.T) {
	in := newInbox(t)
	file := filepath.Join(in.Workdir, "x.py")
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	target, err := in.roots.Target("x.py")
	must(t, err)
	dir, err := target.OpenFolder()
	must(t, err)
	defer dir.Close()
	before, err := dir.Lstat("x.py")
	must(t, err)
	must(t, os.WriteFile(file, []byte("newer"), 0o600))
	p := placement{part: ".x" + files.PartSuffix, dir: dir}
	if err := p.replaceUnchanged("x.py", files.ETagOf(before)); !errors.Is(err, ErrTaken) {
		t.Errorf("error %v", err)
	}
	in.holds("x.py", []byte("newer"))
}

// The file that the sender knows was moved, and a link to another file has its name now.
func TestNoFileIsReplacedThroughALink(t *testing.T) {
	old, data := []byte("old"), body(10)
	for name, c := range map[string]struct {
		path, real string
		link       [2]string // name and target
	}{
		"the file":   {"k.txt", "b.txt", [2]string{"k.txt", "b.txt"}},
		"its folder": {"dir/x/k.txt", "data/x/k.txt", [2]string{"dir", "data"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			path := filepath.Join(in.Workdir, c.path)
			real := filepath.Join(in.Workdir, c.real)
			must(t, os.MkdirAll(filepath.Dir(real), 0o755))
			must(t, os.WriteFile(real, old, 0o600))
			must(t, os.Symlink(c.link[1], filepath.Join(in.Workdir, c.link[0])))
			_, err := in.sendReplacing(path, data, sha(old))
			if !errors.Is(err, ErrTaken) {
				t.Errorf("the upload: %v", err)
			}
			m, bytes := pack(filepath.Dir(path), map[string][]byte{"k.txt": data})
			m.Files[0].Replaces = sha(old)
			if one := in.batch(m, bytes)[0]; !errors.Is(one.Err, ErrTaken) {
				t.Errorf("the batch: %+v", one)
			}
			if got, err := os.ReadFile(real); err != nil || string(got) != string(old) {
				t.Errorf("the file holds %q, %v", got, err)
			}
		})
	}
}

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
				out, err := in.begin(contract.UploadStart{Path: path, SizeBytes: 1, Version: "x", Overwrite: overwrite})
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

// If Drive is not mounted, a file must not be written to the VM's disk instead.
func TestAnUnmountedRootIsNeverCreated(t *testing.T) {
	in := newInbox(t)
	must(t, os.RemoveAll(in.Drive))
	for _, path := range []string{in.Drive + "/x", in.Drive + "/deep/x", in.Drive, "to-drive/x"} {
		if _, err := in.begin(contract.UploadStart{Path: path, SizeBytes: 1, Version: "x"}); !errors.Is(err, files.ErrNotFound) {
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
	if err := in.tryPut(up.UploadID, 50, body(100)[50:]); !errors.Is(err, files.ErrNotFound) {
		t.Fatalf("put without its root: %v, want %v", err, files.ErrNotFound)
	}
	if out, err := in.begin(contract.UploadStart{Path: in.Drive + "/x", SizeBytes: 100, Version: sha(body(100))}); !errors.Is(err, files.ErrNotFound) {
		t.Fatalf("start without its root: %+v, %v", out, err)
	}
	must(t, os.Rename(in.Drive+"-away", in.Drive))
	if out := in.start(in.Drive+"/x", body(100), false); ranges.Set(out.Missing).Total() != 50 {
		t.Fatalf("back again it lacks %v", out.Missing)
	}
	in.put(up.UploadID, 50, body(100)[50:])
	_, err := in.commit(up.UploadID, body(100))
	must(t, err)
	in.holds(in.Drive+"/x", body(100))
}
