package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/diskspace"
)

// lines returns a log of n events of 4,000 characters, each with its number.
func lines(n int) []contract.Event {
	var l log
	for i := range n {
		l.print(contract.Stdout, fmt.Sprintf("%07d %s\n", i, strings.Repeat("x", 3991)))
	}
	return l
}

// read reads the events before until, as a call does, and counts those it fetched. If
// another call has saved later ones, it reads the newest of these.
func read(t *testing.T, events []contract.Event, until int, opt Options) (View, int) {
	t.Helper()
	opt.Limit = 20_000
	c := New(opt)
	fetched := 0
	for c.Next() < int64(until) {
		c.Skip()
		c.Add(events[c.Next()])
		fetched++
	}
	return c.View(context.WithoutCancel(t.Context()), noBlobs), fetched
}

func checkSaved(t *testing.T, dir string, events []contract.Event) {
	t.Helper()
	var want strings.Builder
	for _, e := range events {
		want.WriteString(e.Text)
	}
	got, err := os.ReadFile(filepath.Join(dir, "stdout.txt"))
	if err != nil || string(got) != want.String() {
		t.Errorf("%d bytes are saved, want %d; %v", len(got), want.Len(), err)
	}
}

func TestSavedTextIsExtendedAndNotFetchedAgain(t *testing.T) {
	dir, all := t.TempDir(), lines(1000)
	for call, until := range []int{200, 200, 201, 600, 1000, 1000} {
		from := int64(10 * call)
		v, fetched := read(t, all, until, Options{Dir: dir, From: from})
		if !v.Truncated || len(v.Files) != 1 || !strings.Contains(v.Stdout, fmt.Sprintf("%07d", until-1)) || v.NextOffset >= from+10 {
			t.Errorf("call %d: next %d, files %v, shown %.100q", call, v.NextOffset, v.Files, v.Stdout)
		}
		if most := []int{200, 25, 25, 425, 425, 25}[call]; fetched > most {
			t.Errorf("call %d fetched %d events, want %d at most", call, fetched, most)
		}
		checkSaved(t, dir, all[:until])
	}
}

// Of calls that read a run at once, one at a time saves what comes next. Nothing is saved twice, and
// nothing out of order.
func TestTextIsSavedOnceByCallsAtOnce(t *testing.T) {
	dir, all := t.TempDir(), lines(300)
	first, second := New(Options{Dir: dir, Limit: 20_000}), New(Options{Dir: dir, Limit: 20_000})
	for i := range all {
		first.Add(all[i])
		if i < 200 {
			second.Add(all[i])
		}
	}
	for until, c := range map[int]*Collector{200: second, 300: first} {
		if v := c.View(t.Context(), noBlobs); len(v.Files) != 1 || !strings.Contains(v.Stdout, fmt.Sprintf("%07d", until-1)) {
			t.Errorf("files %v, notes %q", v.Files, v.Notes)
		}
	}
	checkSaved(t, dir, all)
	if err := os.Truncate(filepath.Join(dir, "stdout.txt"), 1000); err != nil {
		t.Fatal(err)
	}
	if v, _ := read(t, lines(400), 400, Options{Dir: dir}); len(v.Files) > 0 || len(v.Notes) != 1 {
		t.Errorf("a file that somebody shortened: files %v, notes %q", v.Files, v.Notes)
	}
}

// Text that a killed relay wrote but did not record is overwritten.
func TestAnInterruptedSaveIsRepaired(t *testing.T) {
	dir, all := t.TempDir(), lines(300)
	read(t, all, 100, Options{Dir: dir})
	f, err := os.OpenFile(filepath.Join(dir, "stdout.txt"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "torn")
	f.Close()
	read(t, all, len(all), Options{Dir: dir})
	checkSaved(t, dir, all)
}

// The saved text of an execution that has ended is complete. A later answer with other events
// adds nothing, and replaces nothing.
func TestNothingIsAddedAfterTheEnd(t *testing.T) {
	dir, all := t.TempDir(), lines(400)
	end := func(events []contract.Event) View {
		c := New(Options{Dir: dir, Limit: 20_000})
		for c.Next() < int64(len(events)) {
			c.Skip()
			c.Add(events[c.Next()])
		}
		c.End()
		return c.View(t.Context(), noBlobs)
	}
	read(t, all, 100, Options{Dir: dir})
	end(all[:200])
	checkSaved(t, dir, all[:200])
	before := states(t, dir)
	for _, later := range [][]contract.Event{all, lines(300), all[:200]} {
		if v := end(later); (len(v.Files) == 1) != (len(later) == 200) { // the file has 200 events
			t.Errorf("files %v, notes %q", v.Files, v.Notes)
		}
	}
	read(t, all, 400, Options{Dir: dir})
	checkSaved(t, dir, all[:200])
	if after := states(t, dir); !maps.Equal(before, after) {
		t.Errorf("it wrote\n%v\nover\n%v", after, before)
	}
}

// A call that begins after what is saved names no file, which would lack what the answer omits.
func TestAFileIsNamedOnlyIfItHasWhatIsOmitted(t *testing.T) {
	dir, all := t.TempDir(), lines(400)
	for _, saved := range []int{0, 100} {
		read(t, all, saved, Options{Dir: dir})
		if v, _ := read(t, all, 400, Options{Dir: dir, From: 250}); len(v.Files)+len(v.Notes) > 0 || !v.Truncated || v.NextOffset < 250 {
			t.Errorf("after %d: files %v, notes %q, next %d", saved, v.Files, v.Notes, v.NextOffset)
		}
	}
	checkSaved(t, dir, all[:100])
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

// small bounds what is kept by less, and reports a disk with so many free bytes.
func smallKeep(folder, all, free int64) *keeping {
	return &keeping{folder: folder, all: all, space: func(string) (diskspace.Space, bool) {
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

// states returns the files below dir with their sizes and times.
func states(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			all[path] = fmt.Sprint(info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Hundreds of runs with something small fill the folder for saved output up to its bound. The runs
// whose output was saved longest ago go first.
func TestTheOutputsOfAllRunsAreBounded(t *testing.T) {
	const all, runs = 1 << 20, 300
	keepBy(t, smallKeep(1<<30, all, 50<<20))
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
	total := int64(0)
	folders, _ := os.ReadDir(root)
	for _, f := range folders {
		total += fileCost
		for _, file := range keptIn(filepath.Join(root, f.Name())) {
			total += file.bytes
		}
	}
	if total > all+fileCost || len(folders) < 5 || len(folders) == runs {
		t.Errorf("%d folders with %d bytes are kept", len(folders), total)
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
		keepBy(t, smallKeep(1<<30, 1<<30, free))
		dir := filepath.Join(t.TempDir(), "run")
		v, _ := poll(t, dir, append(text, png, pictureBlob(contract.EventDisplayData, 1, 1<<10))...)
		if files, _ := os.ReadDir(dir); (len(v.Files) == 3) != saves || (len(files) > 2) != saves || len(v.Pictures) != 1 || (len(v.Notes) == 3) == saves {
			t.Errorf("%d free: files %v, notes %q, %d pictures, %v", free, v.Files, v.Notes, len(v.Pictures), files)
		}
	}
}
