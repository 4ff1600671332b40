package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// readPart reads a whole part.
func readPart(r *Roots, path, etag string, offset, length int64) ([]byte, error) {
	p, err := r.Part(path, etag, offset, length)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return io.ReadAll(p)
}

func TestAPartHasTheBytesOfTheFile(t *testing.T) {
	tr := newTree(t)
	out, err := tr.roots.Stat("a.txt")
	must(t, err)
	for _, tc := range []struct {
		offset, length int64
		want           string
		err            error
	}{
		{offset: 0, length: 5, want: "hello"},
		{offset: 1, length: 3, want: "ell"},
		{offset: 5, length: 3, want: ""},
		{offset: 2, length: 1<<63 - 1, want: "llo"},
		{offset: 6, length: 3, err: ErrBadRange},
		{offset: -1, length: 3, err: ErrBadRange},
	} {
		got, err := readPart(tr.roots, "a.txt", out.ETag, tc.offset, tc.length)
		if !errors.Is(err, tc.err) || string(got) != tc.want {
			t.Errorf("%d bytes at %d: %q, %v, want %q, %v", tc.length, tc.offset, got, err, tc.want, tc.err)
		}
		if tc.err != nil {
			continue
		}
		p, err := tr.roots.Part("a.txt", out.ETag, tc.offset, tc.length)
		must(t, err)
		if p.Length() != int64(len(tc.want)) {
			t.Errorf("%d bytes at %d: the length is %d", tc.length, tc.offset, p.Length())
		}
		must(t, p.Close())
	}
}

// Whenever the file changes before its last byte was read, the part has no end.
func TestAPartOfAFileThatChangesHasNoEnd(t *testing.T) {
	content := body(8 * 1000)
	for name, change := range map[string]func(file string) error{
		"other bytes": func(file string) error { return os.WriteFile(file, body(len(content)), 0o600) },
		"shorter":     func(file string) error { return os.Truncate(file, 500) },
		"touched":     func(file string) error { return os.Chmod(file, 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, read := range []int{0, 7} { // pieces before the change
				tr := newTree(t)
				file := filepath.Join(tr.Workdir, "x")
				must(t, os.WriteFile(file, content, 0o600))
				st, err := tr.roots.Stat("x")
				must(t, err)
				p, err := tr.roots.Part("x", st.ETag, 0, 8*1000)
				must(t, err)
				defer p.Close()
				buf := make([]byte, 1000)
				for range read {
					_, err := io.ReadFull(p, buf)
					must(t, err)
				}
				awaitTick(t, file)
				must(t, change(file))
				rest, err := io.ReadAll(p)
				if !errors.Is(err, ErrChanged) || p.Length() == 0 || read*1000+len(rest) >= len(content) {
					t.Errorf("after %d pieces: %d more bytes, %v", read, len(rest), err)
				}
			}
		})
	}
}
