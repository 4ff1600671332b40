package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/diskspace"
)

// The file that an answer names has all text of its stream from the answer's offset on, however
// long it is and whatever cleared it, and no later answer changes it. An answer that shortens
// nothing leaves no file.
func TestTheWholeOfAShortenedTextIsSaved(t *testing.T) {
	dir, saved := t.TempDir(), map[string]string{}
	for _, lines := range []int{30, 1, 300} {
		var want strings.Builder
		c := New(Options{Dir: dir, From: 7})
		for i := range int64(lines) {
			text := fmt.Sprintf("%07d %s\n", i, strings.Repeat("x", 3991))
			want.WriteString(text)
			c.Add(contract.Event{Offset: 7 + 2*i, Type: contract.EventStream, Name: contract.Stdout, Text: text})
			c.Add(contract.Event{Offset: 8 + 2*i, Type: contract.EventStream, Name: contract.Stderr, Text: "e"})
			if i == 10 {
				c.Add(contract.Event{Offset: 29, Type: contract.EventClearOutput})
			}
		}
		v := c.View(t.Context(), noBlobs)
		if cut := lines > 1; v.Truncated != cut || (len(v.Files) == 1) != cut {
			t.Errorf("%d lines: files %v, notes %q", lines, v.Files, v.Notes)
		}
		for _, f := range v.Files {
			saved[filepath.Base(f.Path)] = want.String()
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(saved) {
		t.Errorf("%d files of %d, %v", len(files), len(saved), err)
	}
	for name, want := range saved {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want || !strings.HasPrefix(name, "stdout-7-") {
			t.Errorf("%s has %d bytes, want %d; %v", name, len(got), len(want), err)
		}
	}
}

// The folder of another instance's execution is another one, also if it has the same id.
func TestEachInstanceHasItsFolder(t *testing.T) {
	folders := map[string]bool{}
	for _, of := range [][2]string{{"a", "run"}, {"b", "run"}, {"a", "Run"}, {"", "a\x00run"}, {"a", "../run"}, {"a", ""}} {
		dir := Folder("/saved", of[0], of[1])
		if filepath.Dir(dir) != filepath.Clean("/saved/executions") || folders[dir] {
			t.Errorf("%q has the folder %q", of, dir)
		}
		folders[dir] = true
	}
}

// smallKeep bounds what is kept by less, and reports a disk with so many free bytes.
func smallKeep(all, free int64) *keeping {
	return &keeping{all: all, space: func(string) (diskspace.Space, bool) {
		return diskspace.Space{Free: free, Size: 100 << 20}, true
	}}
}

// keepBy replaces the bounds until the test ends.
func keepBy(t *testing.T, k *keeping) {
	t.Helper()
	before := usual
	usual = k
	t.Cleanup(func() { usual = before })
}

// picture is a display of a blob of so many bytes, all of which are b.
func pictureBlob(typ contract.EventType, b byte, size int) contract.Event {
	sum := sha256.Sum256(slices.Repeat([]byte{b}, size))
	ref, _ := json.Marshal(contract.BlobRef{Blob: contract.Blob{Number: int(b), SHA256: hex.EncodeToString(sum[:]), Bytes: int64(size)}})
	return contract.Event{Type: typ, DisplayID: "d", Data: map[string]json.RawMessage{"image/x": ref}}
}

// poll renders events, as a call that reads the execution does, and returns what was fetched.
func poll(t *testing.T, dir string, events ...contract.Event) (v View, fetched int64) {
	t.Helper()
	c := New(Options{Dir: dir})
	for i, ev := range events {
		ev.Offset = int64(i)
		c.Add(ev)
	}
	return c.View(t.Context(), func(_ context.Context, blob contract.Blob, w io.Writer) error {
		n, err := w.Write(slices.Repeat([]byte{byte(blob.Number)}, int(blob.Bytes)))
		fetched += int64(n)
		return err
	}), fetched
}

// Hundreds of runs with something small fill the folder for saved output up to its bound. The runs
// whose output was saved longest ago go first.
func TestTheOutputsOfAllRunsAreBounded(t *testing.T) {
	const all, runs = 1 << 20, 300
	keepBy(t, smallKeep(all, 50<<20))
	root := filepath.Join(t.TempDir(), "executions")
	mine := filepath.Join(root, "run-0", "mine.txt")
	for i := range runs {
		dir := filepath.Join(root, fmt.Sprintf("run-%d", i))
		v, _ := poll(t, dir, pictureBlob(contract.EventDisplayData, 1, 10))
		if len(v.Files) != 1 || len(v.Notes) != 0 {
			t.Fatalf("run %d: files %v, notes %q", i, v.Files, v.Notes)
		}
		if i == 0 && os.WriteFile(mine, nil, 0o600) != nil {
			t.Fatal("a file of the user could not be written")
		}
		old := time.Now().Add(time.Duration(i-4000) * time.Minute)
		if err := os.Chtimes(v.Files[0].Path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	total, files := int64(0), keptBelow(root)
	for _, f := range files {
		total += f.bytes
	}
	if total > all+fileCost || len(files) < 5 || len(files) == runs {
		t.Errorf("%d files with %d bytes are kept", len(files), total)
	}
	for _, path := range []string{mine, filepath.Join(root, fmt.Sprintf("run-%d", runs-1))} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("another program's file or the newest run's output was removed: %v", err)
		}
	}
}

// Nothing is saved of a nearly full disk's last bytes, and the answer says so. A picture is shown
// all the same.
func TestAReserveOfTheDiskStaysFree(t *testing.T) {
	const reserve = 5 << 20 // a twentieth of the disk
	png := contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(inJSON(tinyPNG(t)))}}
	var text []contract.Event
	for range 30 {
		text = append(text, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("line\n", 2000)})
	}
	for free, saves := range map[int64]bool{reserve - 1: false, reserve + 1<<20: true} {
		keepBy(t, smallKeep(1<<30, free))
		dir := filepath.Join(t.TempDir(), "run")
		v, _ := poll(t, dir, append(text, png, pictureBlob(contract.EventDisplayData, 1, 1<<10))...)
		if files, _ := os.ReadDir(dir); (len(v.Files) == 3) != saves || (len(files) > 2) != saves || len(v.Pictures) != 1 || (len(v.Notes) == 3) == saves {
			t.Errorf("%d free: files %v, notes %q, %d pictures, %v", free, v.Files, v.Notes, len(v.Pictures), files)
		}
	}
}
