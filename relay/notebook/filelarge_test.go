package notebook

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// setOutputs is a change of one cell's outputs, as a run makes it.
func setOutputs(i int) func(*Document) error {
	text := strings.Repeat("a line of output\n", 1000)
	return func(d *Document) error {
		return d.SetOutputs(i, 1, []map[string]any{{"output_type": "stream", "name": "stdout", "text": text}})
	}
}

// Each edit makes one copy of the file, and reads it again without one: 50 MB with pictures need
// 113 MB of memory. BenchmarkEdit tells the time.
func TestEditsOfALargeFileNeedLittleMemory(t *testing.T) {
	tier.Long(t)
	text := large(17 << 20)
	path := filepath.Join(t.TempDir(), "large.ipynb")
	writeFile(t, path, text)
	f := open(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := f.Read(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		edit(t, f, setOutputs(i))
		if _, err := f.Read(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if copies := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(text)); copies > 5.5 {
		t.Errorf("4 edits made %.1f copies of the file", copies)
	}
	if after.HeapAlloc > before.HeapAlloc+3*uint64(len(text)) {
		t.Errorf("%d MiB are in use", after.HeapAlloc>>20)
	}
}

func TestANoteSaysWhenANotebookBecomesVeryLarge(t *testing.T) {
	small, limit, large := &Document{}, &Document{text: make([]byte, slowSize)}, &Document{text: make([]byte, slowSize+1)}
	for _, test := range []struct {
		before, after *Document
		notes         int
	}{{small, limit, 0}, {limit, large, 1}, {large, large, 0}, {large, small, 0}} {
		notes := notesOf(nil, Change{Before: test.before, After: test.after}, false)
		if len(notes) != test.notes || test.notes > 0 && !strings.Contains(notes[0], "50 MB") {
			t.Errorf("from %d to %d bytes: %q", len(test.before.text), len(test.after.text), notes)
		}
	}
}

func BenchmarkEdit(b *testing.B) {
	path := filepath.Join(b.TempDir(), "large.ipynb")
	if err := os.WriteFile(path, large(50<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := OpenFile(path, filepath.Dir(path))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := f.Edit(b.Context(), "", setOutputs(i%40)); err != nil {
			b.Fatal(err)
		}
	}
}
