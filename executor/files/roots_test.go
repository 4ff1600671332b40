package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
)

func TestResolveKeepsEveryPathInsideTheRoots(t *testing.T) {
	tr := newTree(t)
	base := filepath.Dir(tr.Workdir)
	for _, tc := range []struct {
		path string
		want string // real path under base, when allowed
		err  error
	}{
		{path: "", want: "work"},
		{path: ".", want: "work"},
		{path: "data", want: "work/data"},
		{path: "./data//deep/", want: "work/data/deep"},
		{path: tr.Workdir + "/a.txt", want: "work/a.txt"},
		{path: "/content", want: "work"},
		{path: "/content/data", want: "work/data"},
		{path: os.TempDir(), want: "tmp"},
		{path: "inside/deep", want: "work/data/deep"},
		{path: "up-and-in", want: "work/data/deep"},
		{path: "to-drive/shortcut/model.bin", want: "drive/.targets/abc/model.bin"},
		{path: tr.Drive + "/shortcut", want: "drive/.targets/abc"},
		{path: "..", err: ErrForbidden},
		{path: "data/../a.txt", err: ErrForbidden},
		{path: "/content/../etc", err: ErrForbidden},
		{path: tr.Workdir + "/..", err: ErrForbidden},
		{path: "/", err: ErrForbidden},
		{path: base, err: ErrForbidden},
		{path: "/etc/passwd", err: ErrForbidden},
		{path: "/contentious", err: ErrForbidden},
		{path: tr.Workdir + "-twin", err: ErrForbidden},
		{path: "out", err: ErrForbidden},
		{path: "out/key", err: ErrForbidden},
		{path: "out-rel/key", err: ErrForbidden},
		{path: "out-and-in", err: ErrForbidden},
		{path: "through", err: ErrForbidden},
		{path: "through-top", err: ErrForbidden},
		{path: "etc/passwd", err: ErrForbidden},
		{path: "hop1/key", err: ErrForbidden},
		{path: "null", err: ErrForbidden},
		{path: "proc/etc", err: ErrForbidden},
		{path: "to-state", err: ErrForbidden},
		{path: ".colab-relay", err: ErrForbidden},
		{path: ".colab-relay/log", err: ErrForbidden},
		{path: "/content/.colab-relay/log", err: ErrForbidden},
		{path: "loop", err: ErrBadPath},
		{path: "ping/x", err: ErrBadPath},
		{path: "broken", err: ErrNotFound},
		{path: "nope/nope", err: ErrNotFound},
		{path: "a.txt/x", err: ErrNotDir},
		{path: "a\x00b", err: ErrBadPath},
		{path: strings.Repeat("a", 300), err: ErrBadPath},
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

func TestAPathOutsideIsToldWhatIsServed(t *testing.T) {
	work, extra := realDir(t), realDir(t)
	state := filepath.Join(work, ".state")
	must(t, os.Mkdir(state, 0o700))
	roots, err := Open(work, []string{extra}, state, nil)
	must(t, err)
	_, err = roots.resolve("/etc/passwd")
	if !errors.Is(err, ErrForbidden) {
		t.Fatalf("error is %v, want %v", err, ErrForbidden)
	}
	for _, want := range []string{`"/etc/passwd"`, "outside the folders that the executor serves", strconv.Quote(work), strconv.Quote(extra)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestRootsKnownByALinkServeBothNames(t *testing.T) {
	base := realDir(t)
	real, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	must(t, os.MkdirAll(filepath.Join(real, "sub"), 0o755))
	must(t, os.Mkdir(filepath.Join(real, ".state"), 0o700))
	must(t, os.Symlink(real, link))
	must(t, os.Symlink(link+"/sub", filepath.Join(real, "via")))
	t.Setenv("TMPDIR", "/proc/self/fdinfo")
	roots, err := Open(link, nil, filepath.Join(link, ".state"), nil)
	must(t, err)
	for _, path := range []string{real + "/sub", link + "/sub", "sub", "via"} {
		if _, err := roots.resolve(path); err != nil {
			t.Errorf("resolve(%q): %v", path, err)
		}
	}
	if _, err := roots.resolve(".state"); !errors.Is(err, ErrForbidden) {
		t.Errorf("state dir under a linked workdir: %v, want %v", err, ErrForbidden)
	}
}

func TestOpenRefusesBadRoots(t *testing.T) {
	dir := realDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "state", "in"), 0o700))
	for name, extra := range map[string]string{
		"missing":          filepath.Join(dir, "missing"),
		"a file":           filepath.Join(dir, "file"),
		"inside the state": filepath.Join(dir, "state", "in"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(dir, []string{extra}, filepath.Join(dir, "state"), nil); err == nil {
				t.Fatalf("Open took %q", extra)
			}
		})
	}
}

func TestListSaysWhatEachEntryIsWithoutOpeningIt(t *testing.T) {
	tr := newTree(t)
	must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	// The path of a socket has at most 107 bytes, so bind it by a short name.
	t.Chdir(tr.Workdir)
	l, err := net.Listen("unix", "sock")
	must(t, err)
	defer l.Close()

	out, err := tr.roots.List(context.Background(), "", "")
	must(t, err)
	got := map[string]string{}
	for _, f := range out.Files {
		got[f.Name] = kind(f)
	}
	for name, want := range map[string]string{
		"a.txt": "file", "data": "dir", "inside": "dir", "to-drive": "dir",
		"out": "special", "null": "special", "broken": "special", "loop": "special",
		"to-state": "special", "fifo": "special", "sock": "special",
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
	if !slices.IsSortedFunc(out.Files, func(a, b contract.File) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("entries are not sorted by name")
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

func TestListOfAnythingButAFolderIsRefused(t *testing.T) {
	tr := newTree(t)
	must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	for path, want := range map[string]error{
		"a.txt": ErrNotDir, "fifo": ErrNotDir, "gone": ErrNotFound, "out": ErrForbidden, ".colab-relay": ErrForbidden,
	} {
		if _, err := tr.roots.List(context.Background(), path, ""); !errors.Is(err, want) {
			t.Errorf("List(%q) = %v, want %v", path, err, want)
		}
	}
}

func TestListThroughALinkKeepsTheCallersPath(t *testing.T) {
	tr := newTree(t)
	out, err := tr.roots.List(context.Background(), "to-drive/shortcut", "")
	must(t, err)
	want := filepath.Join(tr.Workdir, "to-drive", "shortcut")
	if out.Path != want || len(out.Files) != 1 || out.Files[0].Path != want+"/model.bin" {
		t.Fatalf("listing is %+v, want it under %q", out, want)
	}
}

func TestListIsCutAtItsBoundAndCountsAll(t *testing.T) {
	tr := newTree(t)
	const n = 2*contract.MaxListFiles + 500
	tr.crowd(t, "big", n)
	must(t, os.Mkdir(filepath.Join(tr.Workdir, "big", "a"), 0o700))
	out, err := tr.roots.List(context.Background(), "big", "")
	must(t, err)
	if len(out.Files) != contract.MaxListFiles || !out.Truncated || out.FileCount != n || out.DirCount != 1 {
		t.Fatalf("%d entries, %d files, %d folders, truncated %v", len(out.Files), out.FileCount, out.DirCount, out.Truncated)
	}
	if last := out.Files[contract.MaxListFiles-1].Name; out.Files[0].Name != "a" || last != fmt.Sprintf("f%06d", contract.MaxListFiles-2) {
		t.Fatalf("kept %q to %q, not the first by name", out.Files[0].Name, last)
	}
}

func TestListExactlyAtTheBoundIsComplete(t *testing.T) {
	tr := newTree(t)
	tr.crowd(t, "full", contract.MaxListFiles)
	out, err := tr.roots.List(context.Background(), "full", "")
	must(t, err)
	if len(out.Files) != contract.MaxListFiles || out.Truncated {
		t.Fatalf("%d entries, truncated %v", len(out.Files), out.Truncated)
	}
}

func TestAnUnusualNameFromAListingCanBeRequested(t *testing.T) {
	tr := newTree(t)
	for _, name := range []string{"new\nline", "bad\xff\xfename", `looks\xffescaped`, "ünïcode", `quo"te`, "-rf *"} {
		must(t, os.MkdirAll(filepath.Join(tr.Workdir, "odd", name), 0o755))
	}
	out, err := tr.roots.List(context.Background(), "odd", "")
	must(t, err)
	raw, err := json.Marshal(out)
	must(t, err)
	var back contract.Files
	must(t, json.Unmarshal(raw, &back))
	if len(back.Files) != 6 {
		t.Fatalf("%d entries, want 6", len(back.Files))
	}
	for _, f := range back.Files {
		again, err := tr.roots.List(context.Background(), f.Path, "")
		if err != nil || again.Path != f.Path {
			t.Errorf("asking for %q again: path %q, error %v", f.Path, again.Path, err)
		}
	}
}

func TestListEndsWithItsContext(t *testing.T) {
	tr := newTree(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tr.roots.List(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v, want %v", err, context.Canceled)
	}
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
