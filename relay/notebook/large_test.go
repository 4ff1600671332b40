package notebook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
	"colabrelay/shared/tier"
)

// large returns a notebook of a size with a picture of 1 MiB in each cell.
func large(size int) []byte {
	random := make([]byte, 768<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	picture := base64.StdEncoding.EncodeToString(random)
	var b strings.Builder
	b.WriteString("{\n \"cells\": [")
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `%.*s
  {
   "cell_type": "code",
   "execution_count": %d,
   "id": "cell-%d",
   "metadata": {},
   "outputs": [
    {
     "data": {
      "image/png": "%s\n"
     },
     "metadata": {},
     "output_type": "display_data"
    }
   ],
   "source": [
    "plot(%d)"
   ]
  }`, min(i, 1), ",", i+1, i, picture, i)
	}
	b.WriteString("\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n")
	return []byte(b.String())
}

// The index of a notebook is small, and an edit makes one copy of the file: 50 MB with pictures
// are read and edited with 52 MB more. BenchmarkParse and BenchmarkSetOutputs tell the time.
func TestALargeNotebookNeedsLittleMemory(t *testing.T) {
	tier.Long(t)
	text := large(8 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Len() {
		d.Cell(i)
	}
	if err := d.SetSource(5, "plot(5)\ny = 2", ""); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if needed := after.TotalAlloc - before.TotalAlloc; needed > uint64(len(text)*5/4) {
		t.Errorf("%d bytes were needed for a notebook of %d bytes", needed, len(text))
	}
}

// Python writes NaN into outputs. One of them made a copy of all outputs that are read, four times
// as large while it was made.
func TestANotebookWithNaNIsHeldOnce(t *testing.T) {
	text := bytes.Replace(large(8<<20), []byte(`"outputs": [`), []byte(`"outputs": [NaN, `), 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Len() {
		d.Cell(i)
	}
	runtime.ReadMemStats(&after)
	if needed := after.TotalAlloc - before.TotalAlloc; needed > uint64(len(text)/50) {
		t.Errorf("%d bytes were needed besides the %d bytes of the notebook", needed, len(text))
	}
}

// An edit has the notebook in memory twice, before and after it.
func TestTheVersionsOfANotebookTogetherAreBounded(t *testing.T) {
	tier.Long(t)
	for _, c := range []struct {
		before, after int
		want          error
	}{
		{maxVersions / 2, maxVersions / 2, ErrNotNotebook}, // it is made, and then not read: all its bytes are 0
		{maxVersions / 2, maxVersions/2 + 1, bounded.ErrTooLong},
		{maxVersions/2 + 1, maxVersions / 2, bounded.ErrTooLong},
		{maxVersions - 100, 100, ErrNotNotebook}, // as when outputs are cleared
	} {
		d := &Document{text: make([]byte, c.before), most: MaxBytes}
		err := d.apply(splice{at: span{0, c.before - c.after/2}, text: make([]byte, c.after-c.after/2)})
		if !errors.Is(err, c.want) {
			t.Errorf("%d to %d bytes: %v", c.before, c.after, err)
		}
	}
}
