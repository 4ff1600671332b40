package uploads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
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
	must(t, os.WriteFile(filepath.Join(in.Workdir, "data/taken.csv"), []byte("theirs"), 0o600))
	m, bytes := pack("data", map[string][]byte{
		"one": body(1000), "zero": {}, "new/deep/two": body(7), "taken.csv": body(9), "empty/": nil, `odd\xff`: body(3),
	})
	first := in.batch(m, bytes)
	for i, want := range []string{"empty", "new/deep/two", `odd\xff`, "one", "taken (1).csv", "zero"} {
		if first[i].Err != nil || first[i].Path != filepath.Join(in.Workdir, "data", want) {
			t.Errorf("%q: %+v", want, first[i])
		}
	}
	in.holds("data/one", body(1000))
	in.holds("data/new/deep/two", body(7))
	in.holds("data/odd\xff", body(3))
	in.holds("data/taken.csv", []byte("theirs"))
	in.holds("data/taken (1).csv", body(9))
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

func TestABatchReplacesFilesOnlyOnRequestAndKeepsTheMode(t *testing.T) {
	in := newInbox(t)
	file := filepath.Join(in.Workdir, "run.sh")
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	must(t, os.Chmod(file, 0o751))
	m, bytes := pack(in.Workdir, map[string][]byte{"run.sh": body(50)})
	m.Overwrite = true
	first := in.batch(m, bytes)
	in.holds("run.sh", body(50))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if again := in.batch(m, bytes); !slices.Equal(again, first) {
		t.Errorf("again: %+v, first %+v", again, first)
	}
}

// Each of these files fails, and the other one in its batch is stored.
func TestAHostileFileDoesNotAffectTheOthersInABatch(t *testing.T) {
	in := newInbox(t)
	base := filepath.Dir(in.Workdir)
	must(t, syscall.Mkfifo(filepath.Join(in.Workdir, "fifo"), 0o600))
	before := strings.Split(everything(t, base), "\n")
	for name, want := range map[string]error{
		"../x": files.ErrForbidden, "a/../../x": files.ErrForbidden, "out/x": files.ErrForbidden, "to-state/x": files.ErrForbidden,
		".colab-relay/x": files.ErrForbidden, ".x" + files.PartSuffix: files.ErrForbidden, "etc/x": files.ErrForbidden, "null": files.ErrForbidden,
		"data": files.ErrIsDir, "fifo": files.ErrNotRegular, "a.txt/x": files.ErrNotDir, "nul\x00": files.ErrBadPath, "loop/x": files.ErrBadPath,
		strings.Repeat("n", 255+1): files.ErrBadPath, strings.Repeat("d/", 4096): files.ErrBadPath, "out/": files.ErrForbidden,
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

func TestTheBoundsOfABatchAreChecked(t *testing.T) {
	tier.Long(t)
	in := newInbox(t)
	many := func(n int) (contract.Manifest, []byte) {
		files := map[string][]byte{}
		for i := range n {
			files[fmt.Sprintf("many/%d", i)] = nil
		}
		return pack("data", files)
	}
	for i, f := range in.batch(many(contract.MaxBatchFiles)) {
		if f.Err != nil {
			t.Fatalf("file %d: %v", i, f.Err)
		}
	}
	in.batch(pack("data", map[string][]byte{"big": body(contract.MaxBatchFile)}))
	broken := func(change func(*contract.ManifestFile)) (contract.Manifest, []byte) {
		m, bytes := pack("data", map[string][]byte{"x": body(10)})
		change(&m.Files[0])
		return m, bytes
	}
	for name, tc := range map[string]func() (contract.Manifest, []byte){
		"one file more": func() (contract.Manifest, []byte) { return many(contract.MaxBatchFiles + 1) },
		"one byte more": func() (contract.Manifest, []byte) {
			return pack("data", map[string][]byte{"big2": body(contract.MaxBatchFile + 1)})
		},
		"a size too small":     func() (contract.Manifest, []byte) { return broken(func(f *contract.ManifestFile) { f.SizeBytes = 9 }) },
		"a size too large":     func() (contract.Manifest, []byte) { return broken(func(f *contract.ManifestFile) { f.SizeBytes = 11 }) },
		"a size below nothing": func() (contract.Manifest, []byte) { return broken(func(f *contract.ManifestFile) { f.SizeBytes = -1 }) },
		"no digest":            func() (contract.Manifest, []byte) { return broken(func(f *contract.ManifestFile) { f.SHA256 = "" }) },
		"an upper-case digest": func() (contract.Manifest, []byte) {
			return broken(func(f *contract.ManifestFile) { f.SHA256 = strings.ToUpper(f.SHA256) })
		},
		"no name": func() (contract.Manifest, []byte) { return broken(func(f *contract.ManifestFile) { f.Name = "" }) },
		"a folder that holds bytes": func() (contract.Manifest, []byte) {
			return broken(func(f *contract.ManifestFile) { f.Name, f.SHA256 = "x/", "" })
		},
	} {
		m, bytes := tc()
		if out, err := in.Batch(t.Context(), m, bytes); !errors.Is(err, ErrBadUpload) {
			t.Errorf("%s: %d answers, %v", name, len(out), err)
		}
	}
	if exists(filepath.Join(in.Workdir, "data/x")) || exists(filepath.Join(in.Workdir, "data/big2")) {
		t.Error("a refused file is there")
	}
}

func TestConcurrentCopiesOfABatchHaveTheSameAnswer(t *testing.T) {
	in := newInbox(t)
	files := map[string][]byte{}
	for i := range 100 {
		files[fmt.Sprintf("f%d", i)] = body(i)
	}
	m, bytes := pack("data", files)
	answers := make([][]BatchResult, 4)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			var err error
			if answers[i], err = in.Batch(t.Context(), m, bytes); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, other := range answers[1:] {
		if !slices.Equal(other, answers[0]) {
			t.Errorf("%+v and %+v", other, answers[0])
		}
	}
	for name, data := range files {
		in.holds("data/"+name, data)
	}
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

func TestABatchEndsWithItsRequest(t *testing.T) {
	in := newInbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, bytes := pack("data", map[string][]byte{"x": body(10)})
	if out, err := in.Batch(ctx, m, bytes); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("%+v, %v", out, err)
	}
	if exists(filepath.Join(in.Workdir, "data/x")) {
		t.Error("it was worked on")
	}
}
