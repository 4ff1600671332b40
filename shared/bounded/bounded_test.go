package bounded

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
		input, inputErr := ReadInput(path, max)
		for what, got := range map[string]struct {
			text []byte
			err  error
		}{"Buffer": {buffer.Bytes(), writeErr}, "ReadAll": {text, readErr}, "ReadFile": {file, fileErr}, "ReadInput": {input, inputErr}} {
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

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	pipe, link, self := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "self")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("pipe", link), os.Symlink("self", self)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, link, self, "/dev/zero"} {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE} {
			if _, err := OpenFile(path, flag); !errors.Is(err, ErrNotFile) || !strings.Contains(err.Error(), path) {
				t.Errorf("%q with flags %#x: %v, want %v", path, flag, err, ErrNotFile)
			}
		}
		if _, err := ReadFile(path, 5); !errors.Is(err, ErrNotFile) {
			t.Errorf("reading %q: %v", path, err)
		}
	}
	made := filepath.Join(dir, "made")
	f, err := OpenFile(made, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("a new file has mode %v, %v", info.Mode(), err)
	}
}

func TestInputMayBeAPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("12345"), 0) }()
	if text, err := ReadInput(pipe, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if _, err := ReadInput("/dev/zero", 5); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "/dev/zero") {
		t.Error(err)
	}
	if _, err := ReadInput(dir, 5); !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
}

func TestLinesUpToTheBoundAreRead(t *testing.T) {
	long := strings.Repeat("x", 100)
	r := bufio.NewReaderSize(strings.NewReader("1234\n"+"12345\n"+long+"\n\n"+"end"), 16)
	for _, want := range []struct {
		text string
		size int64
		err  error
	}{{"1234\n", 5, nil}, {"", 6, nil}, {"", 101, nil}, {"\n", 1, nil}, {"end", 3, io.EOF}, {"", 0, io.EOF}} {
		text, size, err := ReadLine(r, 5)
		if string(text) != want.text || size != want.size || err != want.err {
			t.Errorf("%q, %d, %v; want %+v", text, size, err, want)
		}
	}
}

func TestATailKeepsTheEnd(t *testing.T) {
	for _, size := range []int{1, 3, 10, 100} {
		tail := Tail{Max: 10}
		var all string
		for i := 0; len(all) < 100; i++ {
			piece := strings.Repeat(string(rune('a'+i%26)), size)
			all += piece
			_, _ = tail.Write([]byte(piece))
			if want := all[max(0, len(all)-10):]; tail.String() != want || tail.Dropped() != (len(all) > 10) || len(tail.kept) > 20 {
				t.Fatalf("after %d bytes in pieces of %d: %q, want %q", len(all), size, tail.String(), want)
			}
		}
	}
}

func TestDepthCountsTheLevelsOfJSON(t *testing.T) {
	for text, want := range map[string]int{
		"1": 0, `"[[{\"["`: 0, "[]": 1, `{"a":[1,{"b":"]}"}],"c":[]}`: 3,
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000): 10_000,
	} {
		if got := Depth([]byte(text)); got != want {
			t.Errorf("%.40s: %d levels, want %d", text, got, want)
		}
	}
}

func TestItemsCountsTheLargestArrayOrObject(t *testing.T) {
	for text, want := range map[string]int{
		"1": 0, "]": 0, `"[1,2]"`: 0, "[1,2,[3,4,5]]": 3, `{"a":"1,2,3,\",4","b":[1]}`: 2, "[" + strings.Repeat("0,", 999) + "0]": 1000,
	} {
		if got := Items([]byte(text)); got != want {
			t.Errorf("%.40s: %d items, want %d", text, got, want)
		}
	}
}
