package files

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

const benchPart = 4 << 20 // as relays send and ask for

// BenchmarkRead is a part of a big file, by its etag.
func BenchmarkRead(b *testing.B) {
	tr := newTree(b)
	must(b, os.WriteFile(filepath.Join(tr.workdir, "data/big"), body(4*benchPart), 0o600))
	out, err := tr.roots.Stat("data/big")
	must(b, err)
	buf := make([]byte, benchPart)
	b.SetBytes(benchPart)
	for n := 0; b.Loop(); n++ {
		_, err := tr.roots.Read("data/big", out.ETag, int64(n%4)*benchPart, buf)
		must(b, err)
	}
}

// BenchmarkUpload is 64 MiB from start to its place.
func BenchmarkUpload(b *testing.B) {
	in := newInbox(b)
	data := body(16 * benchPart)
	s := contract.UploadStart{Path: "deep/big", SizeBytes: int64(len(data)), SHA256: sha(data), Overwrite: true}
	b.SetBytes(s.SizeBytes)
	for b.Loop() {
		up, err := in.Start(s)
		must(b, err)
		for at := int64(0); at < s.SizeBytes; at += benchPart {
			in.put(up.UploadID, at, data[at:at+benchPart], true)
		}
		out, err := in.Commit(b.Context(), up.UploadID, patience)
		must(b, err)
		must(b, os.Remove(out.Path))
	}
}

// BenchmarkSmallUpload is what a file of a folder costs beside its bytes.
func BenchmarkSmallUpload(b *testing.B) {
	in := newInbox(b)
	data := body(100)
	for b.Loop() {
		must(b, os.Remove(in.send("deep/small", data, true).Path))
	}
}
