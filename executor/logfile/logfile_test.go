package logfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// disk is a file whose writes may be in trouble.
type disk struct {
	*os.File
	write func(f *os.File, p []byte) (int, error) // nil: no trouble
}

func (d *disk) Write(p []byte) (int, error) {
	if d.write != nil {
		return d.write(d.File, p)
	}
	return d.File.Write(p)
}

// open opens a log whose line for missing ones is "N missing".
func open(t *testing.T, path string, maxBytes int64) (*File, *disk) {
	t.Helper()
	d := &disk{}
	l, err := Open(Config{
		Path: path, MaxBytes: maxBytes, Old: 2,
		Open: func() (_ Disk, err error) {
			d.File, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
			return d, err
		},
		Omitted: func(count int, since time.Time, cause error) []byte {
			if since.IsZero() || cause == nil {
				t.Errorf("missing since %v because of %v", since, cause)
			}
			return fmt.Appendf(nil, "%d missing\n", count)
		},
	})
	must(t, err)
	t.Cleanup(l.Close)
	return l, d
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func TestTheLogIsBoundedByRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	const most = 1050
	for range 3 { // the size of what is there already counts
		l, _ := open(t, path, most)
		for range 25 {
			if _, err := l.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
	}
	found, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(found) != 3 {
		t.Errorf("the folder has %v", found)
	}
	for _, e := range found {
		if info, err := e.Info(); err != nil || info.Size() > most || info.Size() == 0 || info.Mode() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v: %v", e.Name(), info.Size(), info.Mode(), err)
		}
	}
}

func TestAHangingDiskStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		l, d := open(t, path, 1<<20)
		mended := make(chan struct{})
		d.write = func(f *os.File, p []byte) (int, error) {
			<-mended
			return f.Write(p)
		}
		began := time.Now()
		var writers sync.WaitGroup
		for range 5 {
			writers.Go(func() { l.Write([]byte("at once\n")) })
		}
		writers.Wait()
		for range 100 {
			l.Write([]byte("later\n"))
		}
		if took := time.Since(began); took != patience {
			t.Errorf("all lines together took %v, want %v", took, patience)
		}
		close(mended)
		synctest.Wait()
		if _, err := l.Write([]byte("after\n")); err != nil {
			t.Error(err)
		}
		if got, want := content(t, path), "at once\n104 missing\nafter\n"; got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
	})
}

// The disk is full after any number of bytes.
func TestAFullDiskStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	const whole = "line\n3 missing\n"
	for room := range len(whole) {
		path := filepath.Join(t.TempDir(), "log")
		l, d := open(t, path, 1<<20)
		left := room
		d.write = func(f *os.File, p []byte) (int, error) {
			n, err := f.Write(p[:min(left, len(p))])
			left -= n
			if err == nil && n < len(p) {
				err = syscall.ENOSPC
			}
			return n, err
		}
		for range 4 {
			l.Write([]byte("line\n"))
		}
		d.write = nil // somebody made room
		if _, err := l.Write([]byte("line\n")); err != nil {
			t.Error(err)
		}
		made := 0
		for line := range strings.Lines(content(t, path)) {
			missing := 0
			switch n, _ := fmt.Sscanf(line, "%d missing\n", &missing); {
			case line == "line\n":
				made++
			case n == 1 && strings.HasSuffix(line, "missing\n"):
				made += missing
			case !strings.HasPrefix(whole, strings.TrimSuffix(line, "\n")) && !strings.HasSuffix(whole, line):
				t.Errorf("room for %d bytes: the log has a line %q", room, line)
			}
		}
		if twice := (room+1)%len("line\n") == 0; made != 5 && !(twice && made == 6) { // it lacks no more than its end
			t.Errorf("room for %d bytes: %d lines of 5 are there or counted: %q", room, made, content(t, path))
		}
	}
}

// A kill or a crash can leave any part of the last line.
func TestATornLastLineIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for torn, want := range map[string]string{"": "next\n", "one\n": "one\nnext\n", "one\ntw": "one\ntw\nnext\n", "o": "o\nnext\n"} {
		must(t, os.WriteFile(path, []byte(torn), 0o600))
		l, _ := open(t, path, 1<<20)
		l.Write([]byte("next\n"))
		if got := content(t, path); got != want {
			t.Errorf("below %q, the log is %q", torn, got)
		}
	}
}

func TestADeletedOrMovedFileIsMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "log")
	l, _ := open(t, path, 1<<20)
	l.Write([]byte("one\n"))
	must(t, os.Rename(path, path+".moved"))
	l.Write([]byte("two\n"))
	if moved := content(t, path+".moved"); moved != "one\n" || content(t, path) != "two\n" {
		t.Errorf("%q was moved, then came %q", moved, content(t, path))
	}
	must(t, os.RemoveAll(dir))
	l.Write([]byte("nowhere\n"))
	must(t, os.Mkdir(dir, 0o700))
	l.Write([]byte("three\n"))
	if got, want := content(t, path), "1 missing\nthree\n"; got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
}
