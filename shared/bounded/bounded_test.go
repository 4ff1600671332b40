package bounded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestTextsUpToTheBoundAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for max, fits := range map[int64]bool{0: false, 4: false, 5: true, 6: true} {
		buffer := Buffer{Max: max}
		_, writeErr := buffer.Write([]byte("12345"))
		text, readErr := ReadAll(strings.NewReader("12345"), max)
		file, fileErr := ReadFile(path, max)
		for what, got := range map[string]struct {
			text []byte
			err  error
		}{"Buffer": {buffer.Bytes(), writeErr}, "ReadAll": {text, readErr}, "ReadFile": {file, fileErr}} {
			if fits && (got.err != nil || string(got.text) != "12345") {
				t.Errorf("%s of at most %d bytes: %q, %v", what, max, got.text, got.err)
			}
			if !fits && (!errors.Is(got.err, ErrTooLong) || len(got.text) > 0) {
				t.Errorf("%s of at most %d bytes: %q, %v", what, max, got.text, got.err)
			}
		}
	}
}

func TestErrorsAreReturned(t *testing.T) {
	broken := errors.New("broken")
	if _, err := ReadAll(iotest.ErrReader(broken), 5); err != broken {
		t.Error(err)
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none"), 5); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTheErrorNamesTheBound(t *testing.T) {
	for max, want := range map[int64]string{3: "too long: over 3 bytes", 2 << 20: "too long: over 2 MiB"} {
		if got := TooLong(max).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
