package notebook

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
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
