package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
)

func TestResolveKeepsEveryPathInsideTheRoots(t *testing.T) {
	tr := newTree(t)
	base := filepath.Dir(tr.Workdir)
	tr.roots.home = tr.Workdir
	for _, tc := range []struct {
		path string
		want string // real path under base, when allowed
		err  error
	}{
		{path: "", want: "work"},
		{path: "data", want: "work/data"},
		{path: "/content/data", want: "work/data"},
		{path: "~", want: "work"},
		{path: "~/data", want: "work/data"},
		{path: "~/../secret", err: ErrForbidden},
		{path: `\x7e`, err: ErrNotFound},
		{path: "data/~", err: ErrNotFound},
		{path: os.TempDir(), want: "tmp"},
		{path: "up-and-in", want: "work/data/deep"},
		{path: "to-drive/shortcut/model.bin", want: "drive/.targets/abc/model.bin"},
		{path: "..", err: ErrForbidden},
		{path: "/", err: ErrForbidden},
		{path: "/etc/passwd", err: ErrForbidden},
		{path: "/contentious", err: ErrForbidden},
		{path: tr.Workdir + "-twin", err: ErrForbidden},
		{path: "out/key", err: ErrForbidden},
		{path: "out-rel/key", err: ErrForbidden},
		{path: "through", err: ErrForbidden},
		{path: "hop1/key", err: ErrForbidden},
		{path: "proc/etc", err: ErrForbidden},
		{path: ".colab-relay/log", err: ErrForbidden},
		{path: "/content/.colab-relay/log", err: ErrForbidden},
		{path: "ping/x", err: ErrBadPath},
		{path: "broken", err: ErrNotFound},
		{path: "a.txt/x", err: ErrNotDir},
		{path: strings.Repeat("a/", maxPath), err: ErrBadPath},
	} {
		t.Run(fmt.Sprintf("%.60q", tc.path), func(t *testing.T) {
			p, err := tr.roots.resolve(tc.path)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error is %v, want %v", err, tc.err)
			}
			if err == nil && filepath.Join(p.root.real, p.rel) != filepath.Join(base, tc.want) {
				t.Fatalf("leads to %q in %q, want %q", p.rel, p.root.real, tc.want)
			}
		})
	}
}

func TestListSaysWhatEachEntryIsWithoutOpeningIt(t *testing.T) {
	tr := newTree(t)
	must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	out, err := tr.roots.List(context.Background(), "", "")
	must(t, err)
	got := map[string]string{}
	for _, f := range out.Files {
		got[f.Name] = kind(f)
	}
	for name, want := range map[string]string{
		"a.txt": "file", "data": "dir", "inside": "dir", "to-drive": "dir",
		"out": "special", "null": "special", "broken": "special", "loop": "special",
		"to-state": "special", "fifo": "special",
	} {
		if got[name] != want {
			t.Errorf("%q is listed as %q, want %q", name, got[name], want)
		}
	}
	if _, ok := got[".colab-relay"]; ok {
		t.Error("the state dir is listed")
	}
	if out.FileCount+out.DirCount != len(out.Files) || out.Truncated {
		t.Errorf("%d files and %d folders for %d entries, truncated %v", out.FileCount, out.DirCount, len(out.Files), out.Truncated)
	}
}

func kind(f contract.File) string {
	switch {
	case f.Special && f.SizeBytes == 0:
		return "special"
	case f.IsDir:
		return "dir"
	case f.SizeBytes == 5:
		return "file"
	}
	return "wrong"
}

// os.Root keeps a link that is swapped in after the walk from leading out.
func TestALinkSwappedInAfterTheWalkDoesNotLeadOut(t *testing.T) {
	tr := newTree(t)
	p, err := tr.roots.resolve("data")
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(tr.Workdir, "data")))
	must(t, os.Symlink(tr.Secret, filepath.Join(tr.Workdir, "data")))
	l := listing{roots: tr.roots, at: p, shown: "data"}
	if out, err := l.run(context.Background()); err == nil {
		t.Fatalf("listed %+v through a swapped link", out)
	}
}

func FuzzResolve(f *testing.F) {
	tr := newTree(f)
	for _, seed := range []string{"", "data", "../x", "/content", "inside/deep", "out/key", "to-drive/shortcut", `\xff`, "through-top", "hop1", "a\x00", tr.Workdir, tr.Drive + "/shortcut/.."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := tr.roots.resolve(path)
		if err != nil {
			return
		}
		real, err := filepath.EvalSymlinks(filepath.Join(p.root.real, p.rel))
		if err != nil {
			t.Fatalf("resolve(%q) leads to nothing: %v", path, err)
		}
		if within(tr.State, real) || !within(tr.Workdir, real) && !within(tr.Drive, real) && !within(os.TempDir(), real) {
			t.Fatalf("resolve(%q) leads to %q", path, real)
		}
	})
}
