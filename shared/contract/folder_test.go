package contract

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzSplitBatch(f *testing.F) {
	whole, err := AppendIndex([]byte("bytes"), Manifest{Path: "/content", Files: []ManifestFile{{Name: "a", SizeBytes: 5}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[1:])
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		files, index, err := SplitBatch(body)
		if err != nil {
			return
		}
		if len(files)+len(index)+batchTail != len(body) || !bytes.HasPrefix(body, files) {
			t.Fatalf("%q fell into %q and %q", body, files, index)
		}
		if !json.Valid(index) || len(index) == 0 {
			return
		}
		again, err := AppendIndex(bytes.Clone(files), json.RawMessage(index))
		if err != nil {
			t.Fatal(err)
		}
		if back, _, err := SplitBatch(again); err != nil || !bytes.Equal(back, files) {
			t.Fatalf("%q became %q, %v", files, back, err)
		}
	})
}
