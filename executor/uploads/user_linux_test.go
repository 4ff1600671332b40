package uploads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"colabrelay/executor/account"
	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
	"colabrelay/shared/privileged"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// newInboxOf makes an inbox, of root, for uploads into a folder of a user.
func newInboxOf(t *testing.T, u *account.User) (in *inbox, private string) {
	t.Helper()
	work := privileged.Folder(t, u.UID(), u.UID())
	top := filepath.Dir(work)
	in = &inbox{Tree: filestest.Tree{Workdir: work, State: filepath.Join(top, "state")}, t: t, started: map[string]contract.UploadStart{}}
	private = filepath.Join(work, "private") // a folder of root in one of the user
	for _, dir := range []string{in.State, private} {
		must(t, os.Mkdir(dir, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(private, "key"), []byte("secret"), 0o644))
	var err error
	in.roots, err = files.Open(work, nil, in.State, u)
	must(t, err)
	in.open()
	return in, private
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestUploadsBelongToTheKernelsUserAndReplaceNothingOfOthers(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u, err := account.Find("nobody")
	must(t, err)
	in, private := newInboxOf(t, u)
	in.send("folder/file", []byte("content"), false)
	results := in.batch(contract.Manifest{Path: in.Workdir, Files: []contract.ManifestFile{{Name: "batch/file", SizeBytes: 3, SHA256: sha([]byte("abc"))}}}, []byte("abc"))
	must(t, results[0].Err)
	for _, path := range []string{"folder", "folder/file", "batch", "batch/file"} {
		if uid := ownerOf(t, filepath.Join(in.Workdir, path)); uid != u.UID() {
			t.Errorf("%s belongs to %d", path, uid)
		}
	}
	for name, target := range map[string]string{"to-folder": "private", "to-file": "private/key"} {
		must(t, os.Symlink(target, filepath.Join(in.Workdir, name)))
	}
	must(t, os.Link(filepath.Join(private, "key"), filepath.Join(in.Workdir, "second-name")))
	for _, path := range []string{"private/key", "private/new", "to-folder/new", "to-file", "private/new/folder/"} {
		start := contract.UploadStart{Path: path, SizeBytes: 1, Version: "1", Overwrite: true}
		if path[len(path)-1] == '/' {
			start = contract.UploadStart{Path: path}
		}
		if _, err := in.begin(start); !errors.Is(err, files.ErrForbidden) {
			t.Errorf("%s: %v", path, err)
		}
	}
	in.send("second-name", []byte("replaced"), true) // gives the name to another file, as the user could
	in.unharmed(private)
}

// unharmed checks the folder of root.
func (in *inbox) unharmed(private string) {
	in.t.Helper()
	content, err := os.ReadFile(filepath.Join(private, "key"))
	entries, _ := os.ReadDir(private)
	if string(content) != "secret" || err != nil || len(entries) != 1 {
		in.t.Errorf("the private folder holds %v, the key %q, %v", entries, content, err)
	}
}

// The user's code exchanges a folder for a link, and back, while files in it are read and
// uploaded.
func TestAFolderThatIsExchangedForALinkLeadsToNothingOfOthers(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u, err := account.Find("nobody")
	must(t, err)
	in, private := newInboxOf(t, u)
	ctx, cancel := context.WithCancel(within.Context(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, stacks.Old(t).Python, "-", in.Workdir)
	attacks, err := os.ReadFile(filepath.Join("..", "testdata", "attacks.py"))
	must(t, err)
	code := "\nos.chdir(sys.argv[1])\nos.mkdir('inside')\nopen('inside/key', 'w').close()\nswap('door', 'inside', 'private')\n"
	cmd.Stdin = bytes.NewReader(append(attacks, code...))
	running, ended := context.WithCancel(context.Background())
	go func() {
		defer ended()
		if out, err := u.Output(cmd); ctx.Err() == nil {
			t.Errorf("the user's code has ended: %v: %s", err, out)
		}
	}()
	met := map[bool]int{} // whether the file could be read
	for i := 0; ctx.Err() == nil && running.Err() == nil && (i < 200 || met[true] == 0 || met[false] == 0); i++ {
		content, one, err := in.roots.ReadMany(ctx, []string{"door/key"}, func(error) *contract.Error { return new(contract.Error) })
		must(t, err)
		if len(content) > 0 {
			t.Fatalf("it read %q", content)
		}
		met[one[0].Error == nil]++
		if up, err := in.begin(contract.UploadStart{Path: fmt.Sprintf("door/%d", i), SizeBytes: 1, Version: "1"}); err == nil {
			_ = in.tryPut(up.UploadID, 0, []byte("x"))
			_, _ = in.commit(up.UploadID, []byte("x"))
		}
	}
	if met[true] == 0 || met[false] == 0 {
		t.Errorf("the file was read %d times and refused %d times: the folder was not exchanged", met[true], met[false])
	}
	cancel()
	<-running.Done()
	in.unharmed(private)
	must(t, filepath.WalkDir(in.Workdir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != private && filepath.Dir(path) != private && path != in.Workdir && ownerOf(t, path) != u.UID() {
			t.Errorf("%s belongs to %d", path, ownerOf(t, path))
		}
		return err
	}))
}
