package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestNoHostilePathIsReadOrInspected(t *testing.T) {
	tr := newTree(t)
	cases := hostile(t, tr)
	cases["broken"], cases["nope"], cases[`\xff`] = ErrNotFound, ErrNotFound, ErrNotFound
	digests := NewDigests(tr.roots)
	for path, want := range cases {
		t.Run(fmt.Sprintf("%.60q", path), func(t *testing.T) {
			if got, err := readPart(tr.roots, path, "", 0, 10); !errors.Is(err, want) || len(got) != 0 {
				t.Errorf("a part is %q, %v, want %v", got, err, want)
			}
			if want == ErrIsDir {
				return
			}
			if out, err := tr.roots.Stat(path); !errors.Is(err, want) || out.ETag != "" {
				t.Errorf("Stat gave %+v, %v, want %v", out, err, want)
			}
			if out, err := digests.Stat(t.Context(), path, 0); !errors.Is(err, want) || out.SHA256 != "" {
				t.Errorf("Digests.Stat gave %+v, %v, want %v", out, err, want)
			}
		})
	}
}

// Only the file that resolve found is opened, whatever replaces it in between.
func TestAFileSwappedInAfterTheCheckIsNotRead(t *testing.T) {
	for name, swap := range map[string]func(tr tree, file string) error{
		"a link out": func(tr tree, file string) error { return os.Symlink(filepath.Join(tr.Secret, "key"), file) },
		"a link to the state dir": func(tr tree, file string) error {
			return os.Symlink(".colab-relay/log", file)
		},
		"another file": func(tr tree, file string) error { return os.WriteFile(file, []byte("other"), 0o600) },
		"a FIFO":       func(tr tree, file string) error { return syscall.Mkfifo(file, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			file := filepath.Join(tr.Workdir, "a.txt")
			p, err := tr.roots.resolve("a.txt")
			must(t, err)
			must(t, os.Rename(file, file+".old")) // so that its inode is not reused
			must(t, swap(tr, file))
			if o, err := p.open(); err == nil {
				t.Fatalf("%q was opened", o.Name())
			}
		})
	}
}

func TestAFolderSwappedForALinkIsNotReadThrough(t *testing.T) {
	for name, target := range map[string]string{"out": "../secret", "into the state dir": ".colab-relay", "inside": "data2"} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			for _, file := range []string{"work/data/log", "work/.colab-relay/log", "secret/log"} {
				must(t, os.WriteFile(filepath.Join(filepath.Dir(tr.Workdir), file), []byte("hello"), 0o600))
			}
			p, err := tr.roots.resolve("data/log")
			must(t, err)
			must(t, os.Rename(filepath.Join(tr.Workdir, "data"), filepath.Join(tr.Workdir, "data2")))
			must(t, os.Symlink(target, filepath.Join(tr.Workdir, "data")))
			if o, err := p.open(); err == nil {
				t.Fatalf("%q was opened", o.Name())
			}
		})
	}
}

func TestTheETagChangesWithTheFile(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"as long, with its old time": func(file string) error {
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, []byte("HELLO"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(file, info.ModTime(), info.ModTime())
		},
		"replaced": func(file string) error {
			if err := os.WriteFile(file+".new", []byte("hello"), 0o600); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			file := filepath.Join(tr.Workdir, "a.txt")
			before, err := tr.roots.Stat("a.txt")
			must(t, err)
			awaitTick(t, file)
			must(t, change(file))
			if _, err := readPart(tr.roots, "a.txt", before.ETag, 0, 1); !errors.Is(err, ErrChanged) {
				t.Fatalf("reading by the old etag: %v, want %v", err, ErrChanged)
			}
			after, err := tr.roots.Stat("a.txt")
			must(t, err)
			if _, err := readPart(tr.roots, "a.txt", after.ETag, 0, 1); err != nil {
				t.Fatalf("reading by the new etag: %v", err)
			}
		})
	}
}
