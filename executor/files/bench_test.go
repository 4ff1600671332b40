package files

import (
	"os"
	"path/filepath"
	"testing"
)

const benchPart = 4 << 20 // as relays use

// BenchmarkRead reads parts of a large file by its etag.
func BenchmarkRead(b *testing.B) {
	tr := newTree(b)
	must(b, os.WriteFile(filepath.Join(tr.Workdir, "data/big"), body(4*benchPart), 0o600))
	out, err := tr.roots.Stat("data/big")
	must(b, err)
	buf := make([]byte, benchPart)
	b.SetBytes(benchPart)
	for n := 0; b.Loop(); n++ {
		_, err := tr.roots.Read("data/big", out.ETag, int64(n%4)*benchPart, buf)
		must(b, err)
	}
}
