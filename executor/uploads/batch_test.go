package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// pack makes a batch of files below folder.
func pack(folder string, files map[string][]byte) (contract.Manifest, []byte) {
	m := contract.Manifest{Path: folder}
	var all []byte
	for _, name := range sortedKeys(files) {
		f := contract.ManifestFile{Name: name, SizeBytes: int64(len(files[name]))}
		if !strings.HasSuffix(name, "/") {
			f.SHA256 = sha(files[name])
		}
		m.Files = append(m.Files, f)
		all = append(all, files[name]...)
	}
	return m, all
}

func sortedKeys(files map[string][]byte) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (in *inbox) batch(m contract.Manifest, bytes []byte) []BatchResult {
	in.t.Helper()
	out, err := in.Batch(in.t.Context(), m, bytes)
	must(in.t, err)
	if len(out) != len(m.Files) {
		in.t.Fatalf("%d answers about %d files", len(out), len(m.Files))
	}
	return out
}

func TestABatchStoresEachFileAndMayBeRepeated(t *testing.T) {
	in := newInbox(t)
	m, bytes := pack("data", map[string][]byte{
		"one": body(1000), "zero": {}, "new/deep/two": body(7), "empty/": nil, `odd\xff`: body(3),
	})
	first := in.batch(m, bytes)
	for i, want := range []string{"empty", "new/deep/two", `odd\xff`, "one", "zero"} {
		if first[i].Err != nil || first[i].Path != filepath.Join(in.Workdir, "data", want) {
			t.Errorf("%q: %+v", want, first[i])
		}
	}
	in.holds("data/one", body(1000))
	in.holds("data/new/deep/two", body(7))
	in.holds("data/odd\xff", body(3))
	before := everything(t, in.Workdir)
	if again := in.batch(m, bytes); !slices.Equal(again, first) {
		t.Errorf("again: %+v, first %+v", again, first)
	}
	in.reopen()
	if again := in.batch(m, bytes); !slices.Equal(again, first) {
		t.Errorf("after a restart: %+v, first %+v", again, first)
	}
	if after := everything(t, in.Workdir); after != before {
		t.Errorf("there is now\n%s\nand was\n%s", after, before)
	}
	in.folders(0)
}

// Each of these files fails, and the other one in its batch is stored.
func TestAHostileFileDoesNotAffectTheOthersInABatch(t *testing.T) {
	in := newInbox(t)
	base := filepath.Dir(in.Workdir)
	must(t, syscall.Mkfifo(filepath.Join(in.Workdir, "fifo"), 0o600))
	before := strings.Split(everything(t, base), "\n")
	for name, want := range map[string]error{
		"../x": files.ErrForbidden, "a/../../x": files.ErrForbidden, "out/x": files.ErrForbidden, "to-state/x": files.ErrForbidden,
		".x" + files.PartSuffix: files.ErrForbidden, "data": files.ErrIsDir, "fifo": files.ErrNotRegular, "a.txt": ErrTaken, "out/": files.ErrForbidden,
	} {
		m, bytes := pack(in.Workdir, map[string][]byte{name: body(10), "good": body(20)})
		if strings.HasSuffix(name, "/") {
			m, bytes = pack(in.Workdir, map[string][]byte{name: nil, "good": body(20)})
		}
		for i, f := range in.batch(m, bytes) {
			switch good := m.Files[i].Name == "good"; {
			case good && f.Err != nil:
				t.Errorf("beside %.20q: %v", name, f.Err)
			case !good && !errors.Is(f.Err, want):
				t.Errorf("%.20q: %+v, want %v", name, f, want)
			}
		}
	}
	in.holds("good", body(20))
	must(t, os.Remove(filepath.Join(in.Workdir, "good")))
	if after := strings.Split(everything(t, base), "\n"); !slices.Equal(after, before) {
		t.Errorf("there is now %q, and was %q", after, before)
	}
}

func TestBytesOfABatchWithAnotherDigestAreRefused(t *testing.T) {
	in := newInbox(t)
	m, bytes := pack("data", map[string][]byte{"one": body(100), "two": body(50)})
	bytes[3]++
	if out := in.batch(m, bytes); !errors.Is(out[0].Err, ErrDigest) || out[1].Err != nil {
		t.Errorf("%+v", out)
	}
	if exists(filepath.Join(in.Workdir, "data/one")) {
		t.Error("a wrong file is there")
	}
	in.holds("data/two", body(50))
}

// An executor deletes the part files that a killed one has left, and nothing else.
func TestThePartFileOfAKilledBatchIsDeleted(t *testing.T) {
	in := newInbox(t)
	in.stop()
	part, other := newBatchPartName(), newBatchPartName()
	l := leftovers{path: filepath.Join(in.State, "uploads", leftoversFile)}
	for _, name := range []string{part, other} {
		must(t, os.WriteFile(filepath.Join(in.Workdir, "data", name), body(10), 0o600))
		must(t, os.WriteFile(filepath.Join(in.Secret, name), body(10), 0o600))
	}
	for _, folder := range []string{"data", "gone"} {
		l.add(filepath.Join(in.Workdir, folder), part)
	}
	l.add(in.Secret, part)
	l.add(filepath.Join(in.Workdir, "data"), "b.csv")
	l.add(filepath.Join(in.Workdir, "data"), "../a.txt")
	_, err := l.file.WriteString(`{"folder":"torn`)
	must(t, err)
	in.open()
	if exists(filepath.Join(in.Workdir, "data", part)) {
		t.Error("the part is still there")
	}
	for _, path := range []string{filepath.Join(in.Workdir, "data", other), filepath.Join(in.Secret, part), filepath.Join(in.Workdir, "data/b.csv"), filepath.Join(in.Workdir, "a.txt")} {
		if !exists(path) {
			t.Errorf("%q is gone", path)
		}
	}
	in.folders(0)
}
