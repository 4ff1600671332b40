package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
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
			if out, err := digests.Stat(t.Context(), path, "", 0, 0); !errors.Is(err, want) || out.SHA256 != "" {
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

func TestManyFilesAreReadAndFailIndependently(t *testing.T) {
	tr := newTree(t)
	write := func(name string, size int) string {
		path := filepath.Join(tr.Workdir, name)
		must(t, os.WriteFile(path, body(size), 0o600))
		return path
	}
	must(t, syscall.Mkfifo(filepath.Join(tr.Workdir, "fifo"), 0o600))
	paths := []string{
		write("one", 1000), "none", "out/key", "to-state/log", ".colab-relay/log", "fifo", "null", "data", "../x",
		write("largest", contract.MaxBatchFile), write("larger", contract.MaxBatchFile+1), write("zero", 0), "a.txt",
	}
	errs := map[*contract.Error]error{}
	bytes, got, err := tr.roots.ReadMany(t.Context(), paths, func(err error) *contract.Error {
		e := new(contract.Error)
		errs[e] = err
		return e
	})
	must(t, err)
	want := []error{nil, ErrNotFound, ErrForbidden, ErrForbidden, ErrForbidden, ErrNotRegular, ErrForbidden, ErrIsDir, ErrForbidden, nil, ErrTooLarge, nil, nil}
	if len(got) != len(paths) {
		t.Fatalf("%d answers about %d files", len(got), len(paths))
	}
	for i, one := range got {
		if !errors.Is(errs[one.Error], want[i]) {
			t.Errorf("%q: %+v, %v, want %v", paths[i], one, errs[one.Error], want[i])
			continue
		}
		if one.Error != nil {
			continue
		}
		st, err := tr.roots.Stat(paths[i])
		must(t, err)
		if diff := cmp.Diff(contract.Content{SizeBytes: st.SizeBytes, ETag: st.ETag, Modified: st.Modified}, one); diff != "" {
			t.Errorf("%q differs from its stat: %s", paths[i], diff)
		}
		content, err := os.ReadFile(filepath.Join(tr.Workdir, filepath.Base(paths[i])))
		must(t, err)
		if sha(bytes[:one.SizeBytes]) != sha(content) {
			t.Errorf("%q has other bytes", paths[i])
		}
		bytes = bytes[one.SizeBytes:]
	}
	if len(bytes) != 0 {
		t.Errorf("%d bytes are left over", len(bytes))
	}
}

// readPart reads a whole part.
func readPart(r *Roots, path, etag string, offset, length int64) ([]byte, error) {
	p, err := r.Part(path, etag, offset, length)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return io.ReadAll(p)
}

func TestAPartHasTheBytesOfTheFile(t *testing.T) {
	tr := newTree(t)
	out, err := tr.roots.Stat("a.txt")
	must(t, err)
	for _, tc := range []struct {
		offset, length int64
		want           string
		err            error
	}{
		{offset: 0, length: 5, want: "hello"},
		{offset: 1, length: 3, want: "ell"},
		{offset: 5, length: 3, want: ""},
		{offset: 2, length: 1<<63 - 1, want: "llo"},
		{offset: 6, length: 3, err: ErrBadRange},
		{offset: -1, length: 3, err: ErrBadRange},
	} {
		got, err := readPart(tr.roots, "a.txt", out.ETag, tc.offset, tc.length)
		if !errors.Is(err, tc.err) || string(got) != tc.want {
			t.Errorf("%d bytes at %d: %q, %v, want %q, %v", tc.length, tc.offset, got, err, tc.want, tc.err)
		}
		if tc.err != nil {
			continue
		}
		p, err := tr.roots.Part("a.txt", out.ETag, tc.offset, tc.length)
		must(t, err)
		if p.Length() != int64(len(tc.want)) {
			t.Errorf("%d bytes at %d: the length is %d", tc.length, tc.offset, p.Length())
		}
		must(t, p.Close())
	}
}

// Whenever the file changes before its last byte was read, the part has no end.
func TestAPartOfAFileThatChangesHasNoEnd(t *testing.T) {
	content := body(8 * 1000)
	for name, change := range map[string]func(file string) error{
		"other bytes": func(file string) error { return os.WriteFile(file, body(len(content)), 0o600) },
		"shorter":     func(file string) error { return os.Truncate(file, 500) },
		"touched":     func(file string) error { return os.Chmod(file, 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, read := range []int{0, 7} { // pieces before the change
				tr := newTree(t)
				file := filepath.Join(tr.Workdir, "x")
				must(t, os.WriteFile(file, content, 0o600))
				st, err := tr.roots.Stat("x")
				must(t, err)
				p, err := tr.roots.Part("x", st.ETag, 0, 8*1000)
				must(t, err)
				defer p.Close()
				buf := make([]byte, 1000)
				for range read {
					_, err := io.ReadFull(p, buf)
					must(t, err)
				}
				awaitTick(t, file)
				must(t, change(file))
				rest, err := io.ReadAll(p)
				if !errors.Is(err, ErrChanged) || p.Length() == 0 || read*1000+len(rest) >= len(content) {
					t.Errorf("after %d pieces: %d more bytes, %v", read, len(rest), err)
				}
			}
		})
	}
}

// cached is the digest of a small file if it is cached: otherwise hashing fails because ctx has ended.
func cached(d *Digests, path string) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out, err := d.Stat(ctx, path, "", 0, 0)
	return out.SHA256, err
}

func TestADigestIsCachedUntilTheFileChanges(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	d.settledAfter = 0 // a file that changed just now counts as settled
	file := filepath.Join(tr.Workdir, "x")
	must(t, os.WriteFile(file, []byte("first"), 0o600))
	if out, err := d.Stat(t.Context(), "x", "", 0, 0); err != nil || out.SHA256 != sha([]byte("first")) {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, err := cached(d, "x"); err != nil || sum != sha([]byte("first")) {
		t.Fatalf("it is not cached: %q, %v", sum, err)
	}
	awaitTick(t, file)
	must(t, os.WriteFile(file, []byte("other"), 0o600))
	if sum, err := cached(d, "x"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the old digest is cached: %q, %v", sum, err)
	}
	if out, err := d.Stat(t.Context(), "x", "", 0, 0); err != nil || out.SHA256 != sha([]byte("other")) {
		t.Fatalf("changed: %+v, %v", out, err)
	}
}

// A further change within the same clock tick could not be recognised.
func TestTheDigestOfAFileThatChangedJustNowIsNotCached(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	if d.settledAfter != settledAfter || settledAfter < time.Second {
		t.Fatalf("files settle after %v", d.settledAfter)
	}
	d.settledAfter = time.Hour
	if out, err := d.Stat(t.Context(), "a.txt", "", 0, 0); err != nil || out.SHA256 != sha([]byte("hello")) {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, err := cached(d, "a.txt"); !errors.Is(err, context.Canceled) {
		t.Fatalf("it is cached: %q, %v", sum, err)
	}
}

// The first request ended before the file was hashed.
func TestTheNextRequestHashesOn(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	content := body(hashedAtOnce + 1)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "big"), content, 0o600))
	o, err := tr.roots.open("big")
	must(t, err)
	defer o.Close()
	must(t, d.find(o.source()).hash.ReadTo(t.Context(), o, 1000, nil))
	if out, err := d.Stat(t.Context(), "big", "", 0, 0); err != nil || out.SHA256 != "" {
		t.Fatalf("without a wait: %+v, %v", out, err)
	}
	if out, err := d.Stat(t.Context(), "big", "", 0, timeout); err != nil || out.SHA256 != sha(content) {
		t.Fatalf("%+v, %v", out, err)
	}
}

func TestAFileThatChangesWhileItIsHashedHasNoDigest(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	file := filepath.Join(tr.Workdir, "big")
	must(t, os.WriteFile(file, body(hashedAtOnce+1), 0o600))
	o, err := tr.roots.open("big")
	must(t, err)
	defer o.Close()
	awaitTick(t, file)
	must(t, os.WriteFile(file, body(hashedAtOnce+2), 0o600))
	if sum, err := d.sum(t.Context(), o, o.source(), timeout); !errors.Is(err, ErrChanged) {
		t.Fatalf("its digest is %q, %v, want %v", sum, err, ErrChanged)
	}
	if out, err := d.Stat(t.Context(), "big", "", 0, timeout); err != nil || out.SHA256 != sha(body(hashedAtOnce+2)) {
		t.Fatalf("asked again: %+v, %v", out, err)
	}
}

func TestAManifestIsComparedWithTheFilesOnTheVM(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "data/large"), body(hashedAtOnce+1), 0o600))
	tag := func(name string) string {
		st, err := tr.roots.Stat(name)
		must(t, err)
		return st.ETag
	}
	hello := sha([]byte("hello"))
	cases := []struct {
		file contract.ManifestFile
		want contract.CompareState
		path string
	}{
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: hello}, "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, SHA256: sha([]byte("other"))}, "absent", ""},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5}, "unknown", ""}, // with its digest
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: tag("a.txt")}, "same", "a.txt"},
		{contract.ManifestFile{Name: "a.txt", SizeBytes: 5, ETag: "old", SHA256: hello}, "same", "a.txt"},
		{contract.ManifestFile{Name: "data/large", SizeBytes: hashedAtOnce + 1, SHA256: sha(body(hashedAtOnce + 1)), ETag: tag("data/large")}, "same", "data/large"},
		{contract.ManifestFile{Name: "none", SizeBytes: 5, SHA256: hello}, "absent", ""},
		// Files that are not served are absent.
		{contract.ManifestFile{Name: "out/key", SizeBytes: 5, SHA256: hello}, "absent", ""},
		{contract.ManifestFile{Name: "../secret/key", SizeBytes: 5, SHA256: hello}, "absent", ""},
		{contract.ManifestFile{Name: "to-state/log", SizeBytes: 5, SHA256: hello}, "absent", ""},
	}
	m := contract.Manifest{Path: tr.Workdir}
	for _, tc := range cases {
		m.Files = append(m.Files, tc.file)
	}
	got, err := d.Compare(t.Context(), m)
	must(t, err)
	for i, one := range got.Files {
		want, path := cases[i].want, ""
		if want == contract.StateSame {
			path = filepath.Join(tr.Workdir, cases[i].path)
		}
		if one.State != want || one.Path != path || (one.ETag != "") != (want == contract.StateSame) || (one.SHA256 == hello) != (want == contract.StateUnknown) {
			t.Errorf("%+v: %+v, want %q at %q", cases[i].file, one, want, path)
		}
	}
	if len(got.Files) != len(cases) {
		t.Errorf("%d answers", len(got.Files))
	}
	if _, err := d.Compare(t.Context(), contract.Manifest{Path: "../x", Files: []contract.ManifestFile{{Name: "a"}}}); !errors.Is(err, ErrForbidden) {
		t.Errorf("below a forbidden folder: %v", err)
	}
}

func TestAManifestThatMayReplaceFilesNamesThoseThatAreOthers(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	d.settledAfter = 0
	old, large := []byte("old"), body(hashedAtOnce+1)
	for name, content := range map[string][]byte{"a.py": old, "large": large} {
		must(t, os.WriteFile(filepath.Join(tr.Workdir, name), content, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(tr.Workdir, "folder"), 0o755))
	for link, target := range map[string]string{"link.py": "a.py", "here": "."} {
		must(t, os.Symlink(target, filepath.Join(tr.Workdir, link)))
	}
	if st, err := d.Stat(t.Context(), "large", "", 0, timeout); err != nil || st.SHA256 == "" {
		t.Fatalf("%+v, %v", st, err)
	}
	other := sha(body(99))
	for _, c := range []struct {
		name     string
		content  []byte
		replaces string
		want     contract.CompareState
	}{
		{"a.py", old, contract.ReplaceNothing, contract.StateSame},
		{"a.py", body(30), contract.ReplaceNothing, contract.StateTaken},
		{"a.py", body(30), sha(old), contract.StateAbsent},
		{"a.py", body(30), other, contract.StateTaken},
		{"link.py", body(30), sha(old), contract.StateTaken},
		{"here/a.py", body(30), sha(old), contract.StateTaken},
		{"none.py", body(30), other, contract.StateAbsent},
		{"folder", body(30), other, contract.StateTaken},
		{"large", body(30), sha(large), contract.StateAbsent},
		{"null", body(30), other, contract.StateAbsent}, // not served: the upload reports the reason
	} {
		f := contract.ManifestFile{Name: c.name, SizeBytes: int64(len(c.content)), SHA256: sha(c.content), Replaces: c.replaces}
		got, err := d.Compare(t.Context(), contract.Manifest{Path: tr.Workdir, Files: []contract.ManifestFile{f}})
		if err != nil || got.Files[0].State != c.want {
			t.Errorf("%+v: %+v, %v, want %q", f, got, err, c.want)
		}
	}
}
