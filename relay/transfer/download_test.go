package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

func TestAFileIsDownloadedCompletely(t *testing.T) {
	v := useVM(t)
	for name, size := range map[string]int64{
		"empty.bin": 0, "one byte": 1, "exactly a part": partBytes, "parts and a bit": 3*partBytes + 17,
		"it's \"quoted\" — ünïcode": 1000, "new\nline": 5, "CON": 5, "dot.": 5,
	} {
		t.Run(name, func(t *testing.T) {
			want := fill(t, v.path(name), size, 7)
			when := time.Date(2024, 2, 29, 12, 0, 0, 123_000_000, time.UTC)
			must(t, os.Chtimes(v.path(name), when, when))
			dir := t.TempDir()
			r, err := Download(t.Context(), v.client, v.path(name), Local{Dir: dir}, Options{})
			must(t, err)
			local := localName(name, onWindows)
			whole := Result{Path: filepath.Join(dir, local), SHA256: want, SizeBytes: size, DoneBytes: size, MovedBytes: size, Files: 1}
			if diff := cmp.Diff(whole, r); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got := sha(t, r.Path); got != want {
				t.Errorf("SHA-256 is %s, want %s", got, want)
			}
			wantNames(t, dir, local)
			if info, err := os.Stat(r.Path); err != nil || !info.ModTime().Equal(when) {
				t.Errorf("modified is %v, want %v (%v)", info.ModTime(), when, err)
			}
		})
	}
}

func TestAnExistingFileIsOnlyReplacedOnRequest(t *testing.T) {
	v := useVM(t)
	want := fill(t, v.path("a.bin"), partBytes+5, 1)
	dir := t.TempDir()
	other := fill(t, filepath.Join(dir, "a.bin"), partBytes+5, 2)
	get := func(o Options) Result {
		t.Helper()
		r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, o)
		must(t, err)
		return r
	}
	if r := get(Options{}); r.Path != filepath.Join(dir, "a (1).bin") || sha(t, r.Path) != want {
		t.Errorf("next to a different file: %+v", r)
	}
	v.counts.reset()
	skipped := Result{Path: filepath.Join(dir, "a (1).bin"), SHA256: want, SizeBytes: partBytes + 5, DoneBytes: partBytes + 5, Files: 1, Skipped: 1}
	if diff := cmp.Diff(skipped, get(Options{})); diff != "" || v.counts.of(askContent) != 0 {
		t.Errorf("repeated, with %d requests for content (-want +got):\n%s", v.counts.of(askContent), diff)
	}
	if got := sha(t, filepath.Join(dir, "a.bin")); got != other {
		t.Error("the different one was changed")
	}
	if r := get(Options{Overwrite: true}); r.Path != filepath.Join(dir, "a.bin") || sha(t, r.Path) != want {
		t.Errorf("overwriting: %+v", r)
	}
	wantNames(t, dir, "a (1).bin", "a.bin")
}

func TestADownloadNeverLeavesItsFolder(t *testing.T) {
	v := useVM(t)
	fill(t, v.path("a.bin"), 10, 1)
	base := t.TempDir()
	dir, out := filepath.Join(base, "dir"), filepath.Join(base, "out")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.MkdirAll(out, 0o755))
	must(t, os.Symlink(out, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(out, "planted"), filepath.Join(dir, "a.bin")))
	for _, name := range []string{"../x", "/tmp/x", "link/x", "link/sub/x", "..", "a/../../x", "x\x00"} {
		if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir, Name: name}, Options{}); !errors.Is(err, ErrForbiddenName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, o := range []Options{{}, {Overwrite: true}} {
		_, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, o)
		must(t, err)
	}
	wantNames(t, out)
	wantNames(t, base, "dir", "out")
}

func TestTwoDownloadsWithOneNameDoNotMix(t *testing.T) {
	v := useVM(t)
	fill(t, v.path("a.bin"), partBytes, 1)
	dir := t.TempDir()
	root, err := openLocal(dir)
	must(t, err)
	defer root.Close()
	r, err := openRecords("", root)
	must(t, err)
	defer r.close()
	unlock, err := r.lock(root, "a.bin")
	must(t, err)
	if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("while another has the name: %v", err)
	}
	unlock()
	_, err = Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	wantNames(t, dir, "a.bin")
}

// A killed program leaves the journal that it saved last, and the part.
func TestADownloadIsResumedFromWhatAKillLeaves(t *testing.T) {
	v := useVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir, left := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var copied sync.Once
	_, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{Report: func(p Progress) {
		if p.Done < size/2 {
			return
		}
		copied.Do(func() {
			for _, name := range []string{"a.bin.colab-part.json", "a.bin.colab-part"} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || os.WriteFile(filepath.Join(left, name), text, 0o600) != nil {
					t.Errorf("%s was not copied: %v", name, err)
				}
			}
			cancel(errEnough)
		})
	}})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: left}, Options{})
	must(t, err)
	// A kill loses what the journal did not have.
	if sha(t, r.Path) != want || r.ResumedFrom < size/2-partBytes-contract.MaxFilePart || r.MovedBytes != size-r.ResumedFrom {
		t.Errorf("%+v", r)
	}
}

// Bytes that the journal lists are wrong, as after a power cut.
func TestWrongBytesOnTheDiskAreNeverAccepted(t *testing.T) {
	v := useVM(t)
	const size = 3 * partBytes
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	ctx, report := stopAfter(t, partBytes)
	if _, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{Report: report}); !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	must(t, os.Truncate(filepath.Join(dir, "a.bin.colab-part"), 0))
	must(t, os.Truncate(filepath.Join(dir, "a.bin.colab-part"), size))
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	if sha(t, r.Path) != want {
		t.Error("the file is wrong")
	}
}

// changes are what another program does to a file just before each request about its bytes.
var changes = map[string]func(file string, text []byte) error{
	"grows":     func(file string, text []byte) error { return appendTo(file, "one more line\n") },
	"is halved": func(file string, text []byte) error { return os.WriteFile(file, text[:len(text)/2+1], 0o644) },
	"is rewritten and grows": func(file string, text []byte) error {
		text[100]++ // of the part that the transfer reads first, and of the last one
		text[len(text)-100]++
		return os.WriteFile(file, append(text, 'x'), 0o644)
	},
	"is replaced": func(file string, text []byte) error {
		text[100]++
		return errors.Join(os.WriteFile(file+".new", append(text, 'x'), 0o644), os.Rename(file+".new", file))
	},
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// A copy is always the beginning of one state of the file, and no part file stays that nobody can resume.
func TestAFileThatOnlyGrowsIsCopiedUpToItsLengthAtTheStart(t *testing.T) {
	v := useVM(t)
	for name, change := range changes {
		for _, what := range []string{"file, download", "file, upload", "folder, download", "folder, upload"} {
			where, upload := strings.CutSuffix(what, ", upload")
			from, to := v.path(name+what), t.TempDir()
			if upload {
				from, to = t.TempDir(), v.path(name+what)
			}
			file := filepath.Join(from, "train.log")
			source, size := file, int64(partBytes+1000)
			if strings.HasPrefix(where, "folder") {
				source, size = from, contract.MaxBatchFile+1000
			}
			want := fill(t, file, size, 1)
			var states strings.Builder
			var mu sync.Mutex
			v.counts.step(t, func(r *http.Request) {
				if r.URL.Path != contract.PathContent && r.Method != http.MethodPut {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				text, err := os.ReadFile(file)
				states.WriteString("\x00state" + string(text))
				must(t, errors.Join(err, change(file, text)))
			})
			var r Result
			var err error
			if upload {
				r, err = Upload(t.Context(), v.client, source, to+"/", Options{})
			} else {
				r, err = Download(t.Context(), v.client, source, Local{Dir: to, Name: "got/"}, Options{})
			}
			v.counts.step(t, nil)
			if r.IsDir {
				r.Path = filepath.Join(r.Path, "train.log")
			}
			must(t, filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
				if strings.Contains(filepath.Base(path), "part") {
					t.Errorf("%s that %s: %q is left", what, name, path)
				}
				return err
			}))
			switch notes := strings.Join(r.Notes, "\n"); {
			case name == "grows" && (err != nil || sha(t, r.Path) != want || !strings.Contains(notes, "grew")):
				t.Errorf("%s that grows: %+v, %v", what, r, err)
			case name != "grows" && !errors.Is(err, ErrChanged):
				text, readErr := os.ReadFile(file)
				got, gotErr := os.ReadFile(r.Path)
				must(t, errors.Join(err, readErr, gotErr))
				if len(got) == 0 || !strings.Contains(states.String()+"\x00state"+string(text), "\x00state"+string(got)) {
					t.Errorf("%s that %s: a copy of no state of the file: %+v", what, name, r)
				}
			}
		}
	}
}

// A hostile executor answers with more or fewer bytes than the part has.
func TestAPartOfAnotherLengthIsRefused(t *testing.T) {
	content := make([]byte, contract.MaxBatchFile+1)
	for name, sent := range map[string][]byte{
		"longer": append(content[:len(content):len(content)], 1), "shorter, and at last longer": content[:1000],
	} {
		t.Run(name, func(t *testing.T) {
			vm := fakevm.Start(t)
			vm.Put("a.bin", content)
			vm.Lies(func(r *http.Request, _ []byte) (fakevm.Reply, bool) {
				return fakevm.Reply{Body: sent}, r.URL.Path == contract.PathContent
			})
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r, err := Download(ctx, clientOf(t, vm), "a.bin", Local{Dir: dir}, Options{Report: func(p Progress) {
				if p.Done > int64(len(content)) {
					cancel(errors.New("more bytes than the file has"))
				}
			}})
			if _, statErr := os.Stat(filepath.Join(dir, "a.bin")); err == nil || !errors.Is(statErr, fs.ErrNotExist) || ctx.Err() != nil {
				t.Errorf("%+v, %v; a file of that name: %v", r, err, statErr)
			}
			if info, err := os.Stat(filepath.Join(dir, "a.bin.colab-part")); err != nil || info.Size() > int64(len(content)) {
				t.Errorf("the part file: %+v, %v", info, err)
			}
		})
	}
}

func TestANumberedFileIsReported(t *testing.T) {
	v := useVM(t)
	fill(t, v.path("data/a.txt"), 10, 1)
	fill(t, v.path("data/sub/big"), 2<<20, 1) // is downloaded on its own
	fill(t, v.path("data/b"), 10, 1)
	dir := t.TempDir()
	get := func(o Options) Result {
		t.Helper()
		r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, o)
		must(t, err)
		return r
	}
	wantRenamed(t, get(Options{}), nil)
	fill(t, filepath.Join(dir, "data/a.txt"), 10, 2)
	fill(t, filepath.Join(dir, "data/sub/big"), 2<<20, 2)
	want := map[string]string{v.path("data/a.txt"): "a (1).txt", v.path("data/sub/big"): "sub/big (1)"}
	wantRenamed(t, get(Options{}), want)
	r := get(Options{})
	if wantRenamed(t, r, want); r.Skipped != 3 {
		t.Errorf("again: %+v", r)
	}
	wantRenamed(t, get(Options{Overwrite: true}), nil)
}

// wantRenamed compares the notes with the local names, by remote path.
func wantRenamed(t *testing.T, r Result, local map[string]string) {
	t.Helper()
	var want []string
	for remote, name := range local {
		want = append(want, fmt.Sprintf("%s has a different name here: %q", plain.QuoteName(remote), name))
	}
	got := slices.Sorted(slices.Values(r.Notes))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("notes are %q, want %q", got, want)
	}
}

// An identical folder that something else made is neither copied nor changed.
func TestAFolderThatExistsWithTheSameFilesIsNotDownloadedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string)
		same   bool
	}{
		"the same":           {func(string) {}, true},
		"another small file": {func(dir string) { writeText(t, dir+"/a", "A") }, false},
		"another large file": {func(dir string) { fill(t, dir+"/sub/big", contract.MaxBatchFile+1, 2) }, false},
		"one more file":      {func(dir string) { writeText(t, dir+"/more", "") }, false},
		"a link to a file":   {func(dir string) { must(t, os.Remove(dir+"/a")); must(t, os.Symlink("b", dir+"/a")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			vm := fakevm.Start(t)
			dir := t.TempDir()
			mine := filepath.Join(dir, "data")
			writeText(t, mine+"/a", "a")
			writeText(t, mine+"/b", "a")
			fill(t, mine+"/sub/big", contract.MaxBatchFile+1, 1)
			for _, file := range []string{"a", "b", "sub/big"} {
				text, err := os.ReadFile(filepath.Join(mine, file))
				must(t, err)
				vm.Put("data/"+file, text)
			}
			c.change(mine)
			client := clientOf(t, vm)
			r, err := Download(t.Context(), client, "data", Local{Dir: dir, Runtime: "gpu"}, Options{RecordDir: t.TempDir()})
			must(t, err)
			if !c.same {
				if r.Path != mine+" (1)" || r.Skipped != 0 {
					t.Errorf("%+v", r)
				}
				wantNames(t, dir, "data", "data (1)")
				return
			}
			if r.Path != mine || r.Skipped != 3 || r.Files != 3 || r.DoneBytes != r.SizeBytes {
				t.Errorf("%+v", r)
			}
			wantNames(t, dir, "data")
		})
	}
}
