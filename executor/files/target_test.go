package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/contract"
)

func TestNoHostilePathIsUploadedTo(t *testing.T) {
	in := newInbox(t)
	cases := hostile(t, in.tree)
	for path, want := range map[string]error{
		"fresh/":                               ErrIsDir,
		"a.txt/":                               ErrIsDir,
		"/":                                    ErrIsDir,
		"fresh/../x":                           ErrForbidden,
		"fresh/..":                             ErrForbidden,
		in.secret + "/new":                     ErrForbidden,
		"/etc/colab-relay-test":                ErrForbidden,
		"/new":                                 ErrForbidden,
		"out/new":                              ErrForbidden,
		"out/new/deep":                         ErrForbidden,
		"out-rel/new":                          ErrForbidden,
		"etc/new":                              ErrForbidden,
		"hop1/new":                             ErrForbidden,
		"broken-out":                           ErrForbidden,
		"broken-state":                         ErrForbidden,
		"broken-up":                            ErrNotFound,
		".colab-relay/new":                     ErrForbidden,
		".colab-relay/uploads/x/ranges":        ErrForbidden,
		"to-state/new":                         ErrForbidden,
		".x" + partSuffix:                      ErrForbidden,
		"fresh/.x" + partSuffix:                ErrForbidden,
		".x" + partSuffix + "/y":               ErrForbidden,
		"null/x":                               ErrForbidden,
		"fifo/x":                               ErrNotDir,
		"fresh/" + strings.Repeat("a", 256):    ErrBadPath,
		strings.Repeat("b", 256) + "/x":        ErrBadPath,
		"fresh/" + strings.Repeat(`\xff`, 256): ErrBadPath,
		"fresh/a\x00":                          ErrBadPath,
	} {
		cases[path] = want
	}
	must(t, os.Symlink("../secret/new", filepath.Join(in.workdir, "broken-out")))
	must(t, os.Symlink(".colab-relay/new", filepath.Join(in.workdir, "broken-state")))
	must(t, os.Symlink("nope/../../secret/new", filepath.Join(in.workdir, "broken-up")))
	before := everything(t, filepath.Dir(in.workdir))
	for path, want := range cases {
		t.Run(fmt.Sprintf("%.60q", path), func(t *testing.T) {
			for _, overwrite := range []bool{false, true} {
				out, err := in.Start(contract.UploadStart{Path: path, SizeBytes: 1, SHA256: sha([]byte("x")), Overwrite: overwrite})
				if !errors.Is(err, want) || out.UploadID != "" {
					t.Errorf("overwrite %v: %+v, %v, want %v", overwrite, out, err, want)
				}
			}
		})
	}
	if after := everything(t, filepath.Dir(in.workdir)); after != before {
		t.Errorf("refused uploads left\n%s\nwhere there was\n%s", after, before)
	}
}

// everything is the names of all there is under dir.
func everything(t testing.TB, dir string) string {
	t.Helper()
	var names []string
	must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, "\n")
}

func TestUploadsReachTheRealPlaceOfALink(t *testing.T) {
	for _, tc := range []struct{ path, real string }{
		{"inside/deep/n", "work/data/deep/n"},
		{"to-drive/shortcut/new/n", "drive/.targets/abc/new/n"},
		{"broken", "work/nowhere"},
		{"/content/n", "work/n"},
		{"./x//y/./n", "work/x/y/n"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			in := newInbox(t)
			in.send(tc.path, body(10), false)
			in.holds(filepath.Join(filepath.Dir(in.workdir), tc.real), body(10))
		})
	}
}

func TestUploadsTakeUnusualNames(t *testing.T) {
	in := newInbox(t)
	for _, name := range []string{" lead and trail ", `quo"te's`, "new\nline", "ünï→🎉", "bad\xff\xfename", "-rf *", "...", ".hidden", strings.Repeat("é", 127)} {
		out := in.send(contract.EscapeName("odd/"+name+"/"+name), body(20), false)
		in.holds("odd/"+name+"/"+name, body(20))
		if stat, err := in.tree.roots.Stat(out.Path); err != nil || stat.SizeBytes != 20 {
			t.Errorf("the path answered, %q, is %+v, %v", out.Path, stat, err)
		}
	}
}

// Where Drive is not mounted, a file must not land on the VM's disk under its name.
func TestAnUnmountedRootIsNeverMade(t *testing.T) {
	in := newInbox(t)
	must(t, os.RemoveAll(in.drive))
	for _, path := range []string{in.drive + "/x", in.drive + "/deep/x", in.drive, "to-drive/x"} {
		if _, err := in.Start(contract.UploadStart{Path: path, SizeBytes: 1, SHA256: sha([]byte("x"))}); !errors.Is(err, ErrNotFound) {
			t.Errorf("upload to %q: %v, want %v", path, err, ErrNotFound)
		}
	}
	if _, err := os.Stat(in.drive); err == nil {
		t.Error("the root was made")
	}
}

// An upload survives that Drive is unmounted and mounted again.
func TestAnUploadWaitsForItsRoot(t *testing.T) {
	in := newInbox(t)
	up := in.start(in.drive+"/x", body(100), false)
	in.put(up.UploadID, 0, body(50), true)
	must(t, os.Rename(in.drive, in.drive+"-away"))
	if _, err := in.Put(up.UploadID, 50, body(100)[50:], true); !errors.Is(err, ErrNotFound) {
		t.Fatalf("put without its root: %v, want %v", err, ErrNotFound)
	}
	if out, err := in.Start(contract.UploadStart{Path: in.drive + "/x", SizeBytes: 100, SHA256: sha(body(100))}); !errors.Is(err, ErrNotFound) {
		t.Fatalf("start without its root: %+v, %v", out, err)
	}
	must(t, os.Rename(in.drive+"-away", in.drive))
	if out := in.start(in.drive+"/x", body(100), false); out.ReceivedBytes != 50 {
		t.Fatalf("back again it holds %d bytes, want 50", out.ReceivedBytes)
	}
	in.put(up.UploadID, 50, body(100)[50:], true)
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds(in.drive+"/x", body(100))
}

func TestNumberedNamesAreUsable(t *testing.T) {
	long := strings.Repeat("é", 127)
	for _, tc := range []struct {
		name string
		n    int
		want string
	}{
		{"a.txt", 0, "a.txt"},
		{"a.txt", 1, "a (1).txt"},
		{"a", 12, "a (12)"},
		{".bashrc", 1, ".bashrc (1)"},
		{"a.", 1, "a (1)."},
		{"a.tar.gz", 2, "a.tar (2).gz"},
		{long, 1, strings.Repeat("é", 125) + " (1)"},
		{long[:250] + ".csv", 1, strings.Repeat("é", 123) + " (1).csv"},
	} {
		got := numbered(tc.name, tc.n)
		if got != tc.want || len(got) > maxName || !utf8.ValidString(got) {
			t.Errorf("numbered(%q, %d) = %q, want %q", tc.name, tc.n, got, tc.want)
		}
	}
}

func FuzzResolveNew(f *testing.F) {
	tr := newTree(f)
	for _, seed := range []string{"", "new", "new/deep", "../x", "broken", "out/new", "a.txt/x", `\xff/\xfe`, "to-drive/shortcut/n", "through-top", "/content/x", ".x.colab-part", ".colab-relay/x", "data/", "hop1/..", tr.workdir + "/n", tr.drive + "/n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		to, err := tr.roots.resolveNew(path)
		if err != nil {
			return
		}
		real := filepath.Join(to.real(), to.name)
		if within(tr.state, real) || !within(tr.workdir, real) && !within(tr.drive, real) && !within(os.TempDir(), real) {
			t.Fatalf("resolveNew(%q) leads to %q", path, real)
		}
		if to.name == "" || to.name == "." || to.name == ".." || len(to.name) > maxName || strings.ContainsAny(to.name, "/\x00") || isPart(to.name) {
			t.Fatalf("resolveNew(%q) takes the name %q", path, to.name)
		}
		// The deepest folder that exists is reached without a link.
		dir := to.real()
		for !exists(dir) {
			dir = filepath.Dir(dir)
		}
		if clean, err := filepath.EvalSymlinks(dir); err != nil || clean != dir {
			t.Fatalf("resolveNew(%q) goes through a link to %q: %v", path, clean, err)
		}
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
