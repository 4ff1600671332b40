package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// sendReplacing uploads and commits data over a file of which replaces tells the digest.
func (in *inbox) sendReplacing(path string, data []byte, replaces string) (contract.Upload, error) {
	in.t.Helper()
	up, err := in.Start(contract.UploadStart{Path: path, SizeBytes: int64(len(data)), Version: sha(data), Replaces: replaces})
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

// The file changes after it was hashed, while the executor records what it is about to do.
func TestAFileThatChangesJustBeforeItIsReplacedIsKept(t *testing.T) {
	in := newInbox(t)
	file, data := filepath.Join(in.Workdir, "x.py"), body(1000)
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	target, err := in.roots.Target("x.py")
	must(t, err)
	dir, err := target.OpenOrMake()
	must(t, err)
	defer dir.Close()
	p := placement{
		part: ".x" + files.PartSuffix, dir: dir,
		record: record{UploadStart: contract.UploadStart{Path: "x.py", SizeBytes: 1000, Replaces: sha([]byte("old"))}, SHA256: sha(data), Folder: []byte(target.Folder()), Name: []byte(target.Name)},
		save:   func(record) error { return os.WriteFile(file, []byte("newer"), 0o600) },
	}
	if err := p.store(t.Context(), data); !errors.Is(err, ErrTaken) {
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
