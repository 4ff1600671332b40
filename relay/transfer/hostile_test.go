package transfer

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/filename"
	"colabrelay/shared/memory"
	"colabrelay/shared/tier"
)

// clientOf returns a client of a VM that is not a real executor.
func clientOf(t *testing.T, vm *fakevm.VM) *client.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret, Transport: transport})
	must(t, err)
	return c
}

// homeFolder creates a user's folder, which a download must not change.
func homeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, ".ssh"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".ssh", "authorized_keys"), []byte("mine"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, ".bashrc"), []byte("mine"), 0o600))
	return dir
}

func wantUntouched(t *testing.T, home string) {
	t.Helper()
	for _, name := range []string{".ssh/authorized_keys", ".bashrc"} {
		if got, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(got) != "mine" {
			t.Errorf("%s contains %q, %v", name, got, err)
		}
	}
	wantNames(t, filepath.Join(home, ".ssh"), "authorized_keys")
}

func TestTheLocalNameIsFromThePathThatTheCallerTyped(t *testing.T) {
	for _, lie := range []string{"stat-path", "stat-path-file"} {
		for remote, want := range map[string]string{
			"/content/results.csv": "results.csv", "./sub/../results": "results", ".": "gpu", "/content/": "gpu",
		} {
			for _, o := range []Options{{}, {Overwrite: true}} {
				home := homeFolder(t)
				vm := hostilevm.Start(t, lie)
				r, err := Download(t.Context(), clientOf(t, vm), remote, Local{Dir: home, Runtime: "gpu"}, o)
				if err != nil || r.Path != filepath.Join(home, want) {
					t.Errorf("%s: %q went to %q, want %q: %v", lie, remote, r.Path, want, err)
				}
				wantUntouched(t, home)
				wantNames(t, home, ".bashrc", ".ssh", want)
			}
		}
	}
}

// The executor decides whether a path is a folder. A hostile one must not use that to write
// into the user's folder.
func TestAnUnrelatedFolderIsNotMergedInto(t *testing.T) {
	home := homeFolder(t)
	vm := hostilevm.Start(t, "stat-path")
	c := clientOf(t, vm)
	for _, o := range []Options{{}, {Overwrite: true}} {
		r, err := Download(t.Context(), c, "results.csv", Local{Dir: filepath.Dir(home), Name: filepath.Base(home)}, o)
		if want := filepath.Join(home, "results.csv"); err != nil || r.Path != want {
			t.Errorf("%+v: into the folder itself: %q, %v; want %q", o, r.Path, err, want)
		}
	}
	r, err := Download(t.Context(), c, ".ssh", Local{Dir: home}, Options{})
	if err != nil || r.Path != filepath.Join(home, ".ssh (1)") {
		t.Errorf("a folder that has the name already: %q, %v", r.Path, err)
	}
	wantUntouched(t, home)
}

func TestARepeatedDownloadFindsItsFolder(t *testing.T) {
	dir, records := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	vm := fakevm.Start(t)
	vm.Put("data/a", []byte("a"))
	vm.Put("data/b", make([]byte, contract.MaxBatchFile+1)) // it is downloaded on its own
	c := clientOf(t, vm)
	get := func(runtime, remote string) (Result, error) {
		return Download(t.Context(), c, remote, Local{Dir: dir, Runtime: runtime}, Options{RecordDir: records})
	}
	vm.On(func(_ context.Context, r *http.Request) error {
		if r.URL.Path == contract.PathContent && strings.HasSuffix(r.URL.Query().Get("path"), "b") {
			return &contract.Error{Code: contract.CodeInternal, Message: "not now"}
		}
		return nil
	})
	first, err := get("gpu", "data")
	if !errors.Is(err, ErrSomeFailed) || first.Path != filepath.Join(dir, "data (1)") {
		t.Fatalf("%+v, %v", first, err)
	}
	vm.On(func(context.Context, *http.Request) error { return nil })
	for _, remote := range []string{"data", "/content/data/"} {
		again, err := get("gpu", remote)
		if err != nil || again.Path != first.Path || again.Skipped == 0 {
			t.Errorf("%q again: %+v, %v", remote, again, err)
		}
	}
	vm.Put("data/a", []byte("A"))
	other, err := get("cpu", "data")
	if err != nil || other.Path != filepath.Join(dir, "data (2)") || other.Skipped != 0 {
		t.Errorf("of another runtime: %+v, %v", other, err)
	}
}

func TestNamesOfFilesCannotLeaveTheFolder(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "in", "side")
	vm := hostilevm.Start(t, "inner-names")
	r, err := Download(t.Context(), clientOf(t, vm), "results", Local{Dir: dir, Dotfiles: true}, Options{})
	if err != nil || r.Path != filepath.Join(dir, "results") || r.Files != len(hostilevm.EvilNames) {
		t.Errorf("%+v, %v", r, err)
	}
	files := 0
	must(t, filepath.WalkDir(base, func(at string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasSuffix(at, originSuffix) {
			files++
			if filepath.Dir(at) != r.Path || strings.ContainsFunc(at, func(r rune) bool { return !filename.Visible(r) }) {
				t.Errorf("unexpected file %q", at)
			}
		}
		return err
	}))
	if files != len(hostilevm.EvilNames) {
		t.Errorf("%d files, want %d", files, len(hostilevm.EvilNames))
	}
}

func TestALinkInsideAFolderIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "private"), 0o700))
	vm := fakevm.Start(t)
	vm.Put("data/sub/a", []byte("a"))
	c := clientOf(t, vm)
	_, err := Download(t.Context(), c, "data", Local{Dir: dir}, Options{})
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(dir, "data", "sub")))
	must(t, os.Symlink("../private", filepath.Join(dir, "data", "sub")))
	_, err = Download(t.Context(), c, "data", Local{Dir: dir}, Options{Overwrite: true})
	if !errors.Is(err, ErrForbiddenName) {
		t.Errorf("a link in place of a folder: %v", err)
	}
	wantNames(t, filepath.Join(dir, "private"))
}

// The lists of all downloads take a bounded part of the memory, also while other calls hold most of
// it, and each gives back what it took.
func TestTheListsOfAllDownloadsAreBounded(t *testing.T) {
	tier.Long(t)
	c := clientOf(t, hostilevm.Start(t, "folder-long"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if r, err := Download(t.Context(), c, "data", Local{Dir: t.TempDir()}, Options{}); !errors.Is(err, errNoRoom) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	all.Wait()
	free := memory.Trees.Most()
	if !memory.Trees.Take(free) {
		t.Fatal("a download keeps its part")
	}
	memory.Trees.Return(free)
}
