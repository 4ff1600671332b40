package uploads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

func TestAnExistingFileWithTheSameContentCountsAsCommitted(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	must(t, os.WriteFile(filepath.Join(in.Workdir, "x.csv"), data, 0o600))
	before, err := in.roots.Stat("x.csv")
	must(t, err)
	in.send("x.csv", data, false)
	if after, err := in.roots.Stat("x.csv"); err != nil || after.ETag != before.ETag {
		t.Errorf("it was copied: %+v, %v", after, err)
	}
	if again := in.start("x.csv", data, false); again.Status != contract.UploadCommitted {
		t.Errorf("started again it is %+v", again)
	}
}

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

// A folder that is replaced by a link during the upload is not followed: the upload starts
// again at the new target of the path, or is refused.
func TestAFolderSwappedDuringAnUploadIsNotWrittenThrough(t *testing.T) {
	for name, link := range map[string]string{"out": "../secret", "to the state dir": ".colab-relay"} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			up := in.start("data/x", body(100), true)
			in.put(up.UploadID, 0, body(50))
			must(t, os.Rename(filepath.Join(in.Workdir, "data"), filepath.Join(in.Workdir, "moved")))
			must(t, os.Symlink(link, filepath.Join(in.Workdir, "data")))
			before := everything(t, filepath.Join(in.Workdir, link))
			if out, err := in.tryPut(up.UploadID, 50, body(100)[50:]); !errors.Is(err, files.ErrForbidden) {
				t.Errorf("put through the link: %+v, %v, want %v", out, err, files.ErrForbidden)
			}
			if _, err := in.commit(up.UploadID, body(100)); err != nil {
				t.Errorf("commit of the half: %v", err)
			}
			if after := everything(t, filepath.Join(in.Workdir, link)); after != before {
				t.Errorf("behind the link there is now\n%s", after)
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
			out := in.put(up.UploadID, 50, body(100)[50:])
			if out.ReceivedBytes != 50 || out.Missing[0] != (contract.Range{Offset: 0, Length: 50}) {
				t.Errorf("after the part was lost the upload is %+v", out)
			}
			in.put(up.UploadID, 0, body(50))
			_, err := in.commit(up.UploadID, body(100))
			must(t, err)
			in.holds("x", body(100))
			for _, file := range victims {
				in.holds(file, []byte(strings.Repeat("v", 100)))
			}
		})
	}
}

func TestACommittedUploadWhoseFileWasDeletedStartsAgain(t *testing.T) {
	for name, lose := range map[string]func(string) error{
		"removed": os.Remove,
		"changed": func(file string) error { return os.WriteFile(file, []byte("other"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			in.send("x", body(100), true)
			if out := in.start("x", body(100), true); out.Status != contract.UploadCommitted {
				t.Fatalf("while the file is there: %+v", out)
			}
			must(t, lose(filepath.Join(in.Workdir, "x")))
			if out := in.start("x", body(100), true); out.Status != contract.UploadReceiving || out.ReceivedBytes != 0 {
				t.Fatalf("after that: %+v", out)
			}
			in.send("x", body(100), true)
			in.holds("x", body(100))
		})
	}
}

// On file systems without hard links, such as Drive's, an empty file claims the name.
func TestANameIsClaimedWithoutALink(t *testing.T) {
	in := newInbox(t)
	up := in.start("x", body(100), false)
	in.put(up.UploadID, 0, body(100))
	in.stop()
	must(t, os.WriteFile(filepath.Join(in.Workdir, "taken"), []byte("theirs"), 0o600))
	one, err := in.get(up.UploadID)
	must(t, err)
	dir, f, err := one.openPart(os.O_RDONLY)
	must(t, err)
	defer dir.Close()
	defer f.Close()
	p := placement{part: one.part, dir: dir, file: f, record: one.record, save: one.journal.save}
	if done, err := p.claim("taken"); done || err != nil {
		t.Errorf("a taken name: %v, %v", done, err)
	}
	if done, err := p.claim("x"); !done || err != nil {
		t.Errorf("a free name: %v, %v", done, err)
	}
	in.holds("x", body(100))
	in.holds("taken", []byte("theirs"))
}
