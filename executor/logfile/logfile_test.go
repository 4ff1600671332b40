package logfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLogFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "executor.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	for range 3 * maxBytes / len(line) {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	again, err := Open(path) // its size still counts
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for range maxBytes / len(line) / 2 {
		again.Write(line)
	}
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > maxBytes || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v", p, info.Size(), info.Mode().Perm())
		}
	}
}
