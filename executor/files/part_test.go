package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/tier"
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
		{offset: 0, length: 100, want: "hello"},
		{offset: 1, length: 3, want: "ell"},
		{offset: 4, length: 3, want: "o"},
		{offset: 5, length: 3, want: ""},
		{offset: 2, length: 0, want: ""},
		{offset: 2, length: 1<<63 - 1, want: "llo"},
		{offset: 6, length: 3, err: ErrBadRange},
		{offset: -1, length: 3, err: ErrBadRange},
		{offset: 1<<63 - 1, length: 3, err: ErrBadRange},
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
	tier.Long(t)
	content := body(8 * 1000)
	for name, change := range map[string]func(file string) error{
		"other bytes": func(file string) error { return os.WriteFile(file, body(len(content)), 0o600) },
		"longer":      func(file string) error { return os.WriteFile(file, body(len(content)+1), 0o600) },
		"shorter":     func(file string) error { return os.Truncate(file, 500) },
		"empty":       func(file string) error { return os.Truncate(file, 0) },
		"touched":     func(file string) error { return os.Chmod(file, 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			for read := range 8 { // pieces before the change
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

func TestAFileThatChangesAfterItsPartWasReadDoesNotAffectThePart(t *testing.T) {
	tr := newTree(t)
	st, err := tr.roots.Stat("a.txt")
	must(t, err)
	p, err := tr.roots.Part("a.txt", st.ETag, 0, 5)
	must(t, err)
	defer p.Close()
	got := make([]byte, 5)
	_, err = io.ReadFull(p, got)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "a.txt"), []byte("other"), 0o600))
	if n, err := p.Read(make([]byte, 1)); n != 0 || err != io.EOF || string(got) != "hello" {
		t.Errorf("%q, then %d bytes, %v", got, n, err)
	}
}

func TestOffsetsBeyondFourGiB(t *testing.T) {
	tr := newTree(t)
	const at = 1<<32 + 12345
	f, err := os.Create(filepath.Join(tr.Workdir, "big"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(5<<30))
	_, err = f.WriteAt([]byte("there"), at)
	must(t, err)
	out, err := tr.roots.Stat("big")
	must(t, err)
	if out.SizeBytes != 5<<30 {
		t.Fatalf("size is %d", out.SizeBytes)
	}
	if got, err := readPart(tr.roots, "big", out.ETag, at-1, 7); err != nil || string(got) != "\x00there\x00" {
		t.Fatalf("read %q, %v", got, err)
	}
	if got, err := readPart(tr.roots, "big", out.ETag, 5<<30-3, 7); err != nil || len(got) != 3 {
		t.Fatalf("read %d bytes before the end, %v", len(got), err)
	}
}
