package uploads

import (
	"os"
	"testing"

	"colabrelay/shared/contract"
)

const benchPart = 4 << 20 // as relays send

// BenchmarkUpload uploads and commits 64 MiB.
func BenchmarkUpload(b *testing.B) {
	in := newInbox(b)
	data := body(16 * benchPart)
	s := contract.UploadStart{Path: "deep/big", SizeBytes: int64(len(data)), Version: "v", Overwrite: true}
	sum := sha(data)
	b.SetBytes(s.SizeBytes)
	for b.Loop() {
		up, err := in.Start(s)
		must(b, err)
		for at := int64(0); at < s.SizeBytes; at += benchPart {
			in.put(up.UploadID, at, data[at:at+benchPart])
		}
		out, err := in.Commit(b.Context(), up.UploadID, sum, timeout)
		must(b, err)
		must(b, os.Remove(out.Path))
	}
}

// BenchmarkSmallUpload measures the overhead of a small file.
func BenchmarkSmallUpload(b *testing.B) {
	in := newInbox(b)
	data := body(100)
	for b.Loop() {
		must(b, os.Remove(in.send("deep/small", data, true).Path))
	}
}
