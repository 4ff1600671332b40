package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
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
	if total := len(head) + len(tail); total > ForNotebooks.Text || total < ForNotebooks.Text*15/16-1000 {
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

// blob returns a display of a payload outside its event, which claims a size.
func blob(claimed int64) contract.Event {
	ref := fmt.Sprintf(`{"blob":{"number":1,"bytes":%d,"sha256":"%064d"}}`, claimed, 0)
	return contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(ref)}}
}

func TestPayloadsThatAreNamedOftenAreFetchedWithinABound(t *testing.T) {
	for name, test := range map[string]struct {
		claimed, sent int64
		kept          int
	}{
		"small ones":    {1, 1, 511}, // each counts as minBlob
		"large ones":    {8 << 20, 8 << 20, 2},
		"one that lies": {1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			events := slices.Repeat([]contract.Event{blob(test.claimed)}, 1000)
			fetched, kept := int64(0), 0
			outputs := collect(t, new(Collector), events, func(_ context.Context, _ contract.Blob, w io.Writer) error {
				n, err := w.Write(make([]byte, test.sent))
				fetched += int64(n)
				return err
			})
			for _, o := range outputs {
				if o.Data["image/png"] != nil {
					kept++
				} else if o.Data["text/plain"] != "[not kept: image/png]" {
					t.Fatalf("%v", o.Data)
				}
			}
			if kept != test.kept || fetched > ForNotebooks.Payloads {
				t.Errorf("%d kept, %d bytes fetched", kept, fetched)
			}
		})
	}
}

// Payloads in the events themselves are held by each of many notebooks while it waits for its turn.
// Together they take a bounded part of memory; what has no room there is named, not kept.
func TestPayloadsInEventsOfManyNotebooksTakeABoundedPartOfMemory(t *testing.T) {
	const size = 1000
	shown := contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
		"text/html": json.RawMessage(`"` + strings.Repeat("x", memory.FreeDisplays+size-2) + `"`),
	}}
	for left, kept := range map[int64]bool{size: true, size - 1: false} {
		all := memory.Displays.Most() - left
		if !memory.Displays.Take(all) {
			t.Fatal("another test holds displays")
		}
		cell := new(Collector).Begin("a")
		cell.Add(t.Context(), []contract.Event{shown}, nil)
		memory.Displays.Return(all)
		if data := cell.Outputs()[0].Data; (data["text/html"] != nil) != kept {
			t.Errorf("with room for %d bytes: %.80v", left, data)
		}
	}
	if !memory.Displays.Take(memory.Displays.Most()) {
		t.Fatal("the cells keep their room")
	}
	memory.Displays.Return(memory.Displays.Most())
}
