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

	"go.uber.org/goleak"

	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of the helpers shared by the packages that handle files.
var (
	must      = filestest.Must
	sha       = filestest.SHA
	body      = filestest.Body
	exists    = filestest.Exists
	awaitTick = filestest.AwaitTick
)

const timeout = filestest.Timeout

// tree is a test tree and its roots.
type tree struct {
	filestest.Tree
	roots *Roots
}

func newTree(t testing.TB) tree {
	t.Helper()
	tr := tree{Tree: filestest.New(t)}
	var err error
	tr.roots, err = Open(tr.Workdir, []string{tr.Drive}, tr.State, nil)
	must(t, err)
	return tr
}

func hostile(t testing.TB, tr tree) map[string]error {
	t.Helper()
	return tr.Hostile(t, filestest.Refusals{Forbidden: ErrForbidden, IsDir: ErrIsDir, NotDir: ErrNotDir, NotRegular: ErrNotRegular, BadPath: ErrBadPath})
}

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

// twins are names that look like the escaped form of one another.
var twins = []string{"\xff", `\xff`, `\x5cxff`, "\\\xff"}

func TestNamesThatLookEscapedAreDistinguished(t *testing.T) {
	tr := newTree(t)
	for _, folder := range twins {
		must(t, os.Mkdir(filepath.Join(tr.Workdir, folder), 0o755))
		for _, name := range twins {
			must(t, os.WriteFile(filepath.Join(tr.Workdir, folder, name), []byte(folder+"/"+name), 0o600))
		}
	}
	for _, folder := range twins {
		out, err := tr.roots.List(t.Context(), contract.EscapeName(folder), "")
		must(t, err)
		if len(out.Files) != len(twins) {
			t.Fatalf("%q holds %+v", folder, out.Files)
		}
		for _, f := range out.Files {
			st, err := tr.roots.Stat(f.Path)
			must(t, err)
			got, err := readPart(tr.roots, f.Path, st.ETag, 0, 100)
			if want := folder + "/" + contract.UnescapeName(f.Name); err != nil || string(got) != want {
				t.Errorf("%q holds %q, want %q (%v)", f.Path, got, want, err)
			}
		}
		must(t, os.RemoveAll(filepath.Join(tr.Workdir, folder, `\xff`)))
		if _, err := tr.roots.Stat(contract.EscapeName(folder + `/\xff`)); err == nil {
			t.Errorf("another file of %q is taken for one that is gone", folder)
		}
	}
}

func FuzzResolveNew(f *testing.F) {
	tr := newTree(f)
	for _, seed := range []string{"", "new", "new/deep", "../x", "broken", "out/new", "a.txt/x", `\xff/\xfe`, "to-drive/shortcut/n", "through-top", "/content/x", ".x.colab-part", ".colab-relay/x", "data/", "hop1/..", tr.Workdir + "/n", tr.Drive + "/n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		to, err := tr.roots.Target(path)
		if err != nil {
			return
		}
		real := filepath.Join(to.Folder(), to.Name)
		if within(tr.State, real) || !within(tr.Workdir, real) && !within(tr.Drive, real) && !within(os.TempDir(), real) {
			t.Fatalf("resolveNew(%q) leads to %q", path, real)
		}
		if to.Name == "" || to.Name == "." || to.Name == ".." || len(to.Name) > filename.MaxBytes || strings.ContainsAny(to.Name, "/\x00") || IsPart(to.Name) {
			t.Fatalf("resolveNew(%q) takes the name %q", path, to.Name)
		}
		// The deepest folder that exists is reached without a link.
		dir := to.Folder()
		for !exists(dir) {
			dir = filepath.Dir(dir)
		}
		if clean, err := filepath.EvalSymlinks(dir); err != nil || clean != dir {
			t.Fatalf("resolveNew(%q) goes through a link to %q: %v", path, clean, err)
		}
	})
}

func TestLinksThatFormALoopAreMarked(t *testing.T) {
	tr := newTree(t)
	at := func(name string) string { return filepath.Join(tr.Workdir, name) }
	must(t, os.MkdirAll(at("a/sub"), 0o755))
	must(t, os.MkdirAll(at("b"), 0o755))
	for link, target := range map[string]string{
		"a/self": ".", "a/sub/up": "..", "a/sub/top": tr.Workdir, "a/sub/across": "../../b", "b/back": "../a",
		"a/file": "../a.txt", "a/sibling": "sub",
	} {
		must(t, os.Symlink(target, at(link)))
	}
	for folder, want := range map[string]map[string]bool{
		"a":              {"self": true, "sub": false, "file": false, "sibling": false},
		"b":              {"back": false},
		"a/sub/across":   {"back": true},
		"a/sibling":      {"up": true, "top": true, "across": false},
		tr.Workdir + "/": {"loop": false, "a": false, "inside": false},
	} {
		out, err := tr.roots.List(t.Context(), folder, "")
		must(t, err)
		got := map[string]bool{}
		for _, f := range out.Files {
			got[f.Name] = f.Loop
		}
		for name, loop := range want {
			if there, ok := got[name]; !ok || there != loop {
				t.Errorf("in %q, %q is listed %v with loop %v, want %v", folder, name, ok, there, loop)
			}
		}
	}
}

// crowd makes n files in a folder of the workdir.
func (tr tree) crowd(t testing.TB, folder string, n int) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(tr.Workdir, folder), 0o755))
	for i := range n {
		must(t, os.Link(filepath.Join(tr.Workdir, "a.txt"), filepath.Join(tr.Workdir, folder, fmt.Sprintf("f%06d", i))))
	}
}

// enumerate lists a folder page by page; between is called after each page.
func (tr tree) enumerate(t testing.TB, folder string, between func(page int)) []string {
	t.Helper()
	var names []string
	for page, after := 1, ""; ; page++ {
		got, err := tr.roots.List(t.Context(), folder, after)
		must(t, err)
		for _, f := range got.Files {
			names = append(names, f.Name)
		}
		if !got.Truncated {
			return names
		}
		after = names[len(names)-1]
		between(page)
	}
}

// Names that exist throughout appear exactly once, even if others are created and deleted.
func TestAFolderThatChangesBetweenPagesLosesNoName(t *testing.T) {
	tr := newTree(t)
	const n = 3 * contract.MaxListFiles
	tr.crowd(t, "big", n)
	name := func(i int) string { return filepath.Join(tr.Workdir, "big", fmt.Sprintf("f%06d", i)) }
	gone := map[string]bool{}
	names := tr.enumerate(t, "big", func(page int) {
		for i := page; i < n; i += 97 { // on earlier and on later pages
			if base := filepath.Base(name(i)); !gone[base] {
				gone[base] = true
				must(t, os.Remove(name(i)))
			}
		}
		must(t, os.WriteFile(filepath.Join(tr.Workdir, "big", fmt.Sprintf("a-new-%d", page)), nil, 0o600))
		must(t, os.WriteFile(filepath.Join(tr.Workdir, "big", fmt.Sprintf("z-new-%d", page)), nil, 0o600))
	})
	seen := map[string]int{}
	for _, one := range names {
		seen[one]++
	}
	for i := range n {
		base := fmt.Sprintf("f%06d", i)
		if seen[base] > 1 || seen[base] == 0 && !gone[base] {
			t.Fatalf("%q appears %d times", base, seen[base])
		}
	}
	// A new listing shows the current entries.
	entries, err := os.ReadDir(filepath.Join(tr.Workdir, "big"))
	must(t, err)
	if again := tr.enumerate(t, "big", func(int) {}); len(again) != len(entries) {
		t.Errorf("%d names then, %d files are there", len(again), len(entries))
	}
}

// Pages never come from a snapshot of another folder, or of one that was replaced.
func TestPagesAreOfTheirFolderOnly(t *testing.T) {
	tr := newTree(t)
	const n = 2 * contract.MaxListFiles
	tr.crowd(t, "one", n)
	tr.crowd(t, "two", n)
	for _, folder := range []string{"one", "two"} {
		if _, err := tr.roots.List(t.Context(), folder, ""); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.Rename(filepath.Join(tr.Workdir, "one"), filepath.Join(tr.Workdir, "old")))
	tr.crowd(t, "one", contract.MaxListFiles+7)
	if page, err := tr.roots.List(t.Context(), "one", fmt.Sprintf("f%06d", contract.MaxListFiles-1)); err != nil || len(page.Files) != 7 || page.Truncated {
		t.Errorf("%d files, truncated %v, %v", len(page.Files), page.Truncated, err)
	}
	if page, err := tr.roots.List(t.Context(), "two", fmt.Sprintf("f%06d", contract.MaxListFiles-1)); err != nil || len(page.Files) != contract.MaxListFiles || page.Truncated {
		t.Errorf("%d files, truncated %v, %v", len(page.Files), page.Truncated, err)
	}
}

// Files of /proc report 0 bytes, so a copy would be empty and look complete.
func TestAFileThatTheKernelGeneratesIsNotServed(t *testing.T) {
	tr := newTree(t)
	roots, err := Open(tr.Workdir, []string{"/proc/sys/kernel", "/sys/devices/system/cpu"}, tr.State, nil)
	must(t, err)
	for _, path := range []string{"/proc/sys/kernel/ostype", "/sys/devices/system/cpu/online"} {
		if st, err := roots.Stat(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %+v, %v", path, st, err)
		}
		if got, err := readPart(roots, path, "", 0, 10); len(got) != 0 || !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "empty"), nil, 0o600))
	if st, err := roots.Stat("empty"); err != nil || st.ETag == "" {
		t.Errorf("an empty file: %+v, %v", st, err)
	}
}
