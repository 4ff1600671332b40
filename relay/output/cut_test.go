package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestALongTextHasHeadAndTailAndIsSavedAsAWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	c := Collector{Save: SaveIn(dir, "~/saved", "my/book")}
	cell := c.Begin("#3-ab")
	var b strings.Builder
	for i := 0; b.Len() < 3<<20; i++ {
		var events []contract.Event
		for range 200 {
			line := fmt.Sprintf("%d %s\n", i, strings.Repeat("ü", i%100))
			events = append(events, print(line[:1]), print(line[1:]))
			b.WriteString(line)
		}
		cell.Add(t.Context(), events, nil)
	}
	cell.Add(t.Context(), []contract.Event{print("50%\r51%"), show(contract.EventDisplayData, "", `{"text/plain": "a"}`), print("end")}, nil)
	whole := b.String() + "51%end"
	name := onlyFile(t, dir)
	if saved, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(saved) != whole || !strings.HasPrefix(name, "my_book-") {
		t.Errorf("%s has %d of %d bytes: %v", name, len(saved), len(whole), err)
	}
	outputs := cell.Outputs()
	if len(outputs) != 5 {
		t.Fatalf("%d outputs", len(outputs))
	}
	head, marker, tail := outputs[0].Text, outputs[1].Text, outputs[2].Text
	cut := int64(len(whole) - len(head) - len(tail) - len("end"))
	if want := fmt.Sprintf("[%d bytes of text left out here, because the cell has too many. The whole text is in ~/saved/%s.]\n", cut, name); marker != want {
		t.Errorf("%q, want %q", marker, want)
	}
	if !strings.HasPrefix(whole, head) || !strings.HasSuffix(head, "\n") || !strings.HasSuffix(whole, tail+outputs[4].Text) || whole[len(head)+int(cut)-1] != '\n' {
		t.Errorf("head %.30q…, tail %.30q…", head, tail)
	}
	if total := len(head) + len(tail) + 3; total > ForNotebooks.Text || total < ForNotebooks.Text-1000 {
		t.Errorf("%d bytes are shown", total)
	}
	cell.Add(t.Context(), []contract.Event{{Type: contract.EventClearOutput}}, nil)
	if onlyFile(t, dir) != "" || len(cell.Outputs()) > 0 {
		t.Error("a cleared text is still there")
	}
}

// onlyFile returns the name of the only file in a folder, or "".
func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 1 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		return file.Name()
	}
	return ""
}

func TestAMarkerSaysWhyTheWholeTextIsNotThere(t *testing.T) {
	limits := ForNotebooks
	limits.Saved = 2 << 20
	full := func(string, int64, []byte) (string, error) {
		return "", &fs.PathError{Op: "write", Path: "/x", Err: errors.New("no space left on device")}
	}
	for name, test := range map[string]struct {
		limits Limits
		save   SaveText
		want   string
	}{
		"no folder":   {ForNotebooks, nil, "Nothing keeps the whole text."},
		"a full disk": {ForNotebooks, full, "The whole text could not be saved: write /x: no space left on device."},
		"a bound":     {limits, saver{}.save, "The first 2097152 bytes of the text are in k.txt."},
	} {
		c := Collector{Limits: test.limits, Save: test.save}
		cell := c.Begin("k")
		for range 3 << 4 {
			cell.Add(t.Context(), []contract.Event{print(strings.Repeat(strings.Repeat("x", 1023)+"\n", 64))}, nil)
		}
		if outputs := cell.Outputs(); len(outputs) != 3 || !strings.HasSuffix(outputs[1].Text, " "+test.want+"]\n") {
			t.Errorf("%s: %d outputs, %q", name, len(outputs), outputs[1].Text)
		}
	}
}

func TestALinkDoesNotLeadASavedTextOutside(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	save := SaveIn(dir, dir, "n")
	if _, err := save("k", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, onlyFile(t, dir))
	if err := errors.Join(os.WriteFile(outside, []byte("precious"), 0o600), os.Remove(path), os.Symlink(outside, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := save("k", 1, []byte("y")); err == nil {
		t.Error("a text was written through a link")
	}
	if _, err := save("k", 0, []byte("z")); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestTooManyOutputs(t *testing.T) {
	cell := new(Collector).Begin("k")
	defer cell.collector.Close()
	for i := range 12_345 {
		cell.Add(t.Context(), []contract.Event{show(contract.EventDisplayData, fmt.Sprint(i), fmt.Sprintf(`{"text/plain": "%d"}`, i))}, nil)
	}
	outputs := cell.Outputs()
	shown := func(i int) any { return outputs[i].Data["text/plain"] }
	if len(outputs) != 10_001 || shown(0) != "0" || shown(4999) != "4999" || shown(5001) != "7345" || shown(10_000) != "12344" {
		t.Fatalf("%d outputs: %v", len(outputs), outputs[5000])
	}
	if want := "[2345 outputs left out here, because the cell has too many.]\n"; outputs[5000].Text != want {
		t.Errorf("%q", outputs[5000].Text)
	}
	if n := len(cell.collector.displays); n != 10_000 {
		t.Errorf("%d displays are known", n)
	}
}

func TestTooLargeExceptionsAreNotKept(t *testing.T) {
	long := contract.Event{Type: contract.EventError, EName: "E", Traceback: []string{strings.Repeat("x", 60<<10)}}
	cell := new(Collector).Begin("k")
	defer cell.collector.Close()
	for range 1000 {
		cell.Add(t.Context(), []contract.Event{long}, nil)
	}
	outputs := cell.Outputs()
	if got := outputs[999].Traceback[0]; outputs[500].EName != "E" || got != "[the exception is not kept: the cell's outputs are too large]" {
		t.Errorf("%.100q", got)
	}
}

// A run that prints a lot must not need that much memory, nor much time.
func TestAFloodOfTextNeedsLittleMemory(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	c := Collector{Save: SaveIn(dir, "~", "n")}
	cell := c.Begin("k")
	events := []contract.Event{print(strings.Repeat("the same line again and again\n", 16<<10/30))}
	total := 40 << 20
	for range total / (16 << 10) {
		cell.Add(t.Context(), events, nil)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 16<<20 {
		t.Errorf("%d MiB are in use", m.HeapAlloc>>20)
	}
	info, err := os.Stat(filepath.Join(dir, onlyFile(t, dir)))
	if want := int64(len(events[0].Text)) * int64(total/(16<<10)); err != nil || info.Size() != want {
		t.Errorf("%d of %d bytes are saved: %v", info.Size(), want, err)
	}
	runtime.KeepAlive(cell)
}

func TestLongLinesAreNotFolded(t *testing.T) {
	text := strings.Repeat("世", maxLine) + "\rend"
	outputs := collect(t, &Collector{Limits: ForDocuments}, []contract.Event{print(text)}, nil)
	kept := strings.Repeat("世", maxLine/3*3) // all pieces but the last are complete
	if got := outputs[0].Text; !strings.HasPrefix(got, kept) || len(got) > len(text) || !strings.Contains(got, "end") {
		t.Errorf("%d of %d bytes", len(got), len(text))
	}
}
