package files

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

const benchPart = 4 << 20 // as relays use

// BenchmarkPart reads parts of a large file by its etag.
func BenchmarkPart(b *testing.B) {
	tr := newTree(b)
	must(b, os.WriteFile(filepath.Join(tr.Workdir, "data/big"), body(4*benchPart), 0o600))
	out, err := tr.roots.Stat("data/big")
	must(b, err)
	buf := make([]byte, 64<<10)
	b.SetBytes(benchPart)
	for n := 0; b.Loop(); n++ {
		p, err := tr.roots.Part("data/big", out.ETag, int64(n%4)*benchPart, benchPart)
		must(b, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, p, buf)
		must(b, err)
		must(b, p.Close())
	}
}
