package logfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/damage"
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

func TestADamagedLogIsKeptAndTheNextOneBegins(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			for _, name := range []string{"executor.log", "executor.log.1"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("a line of "+name+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			l, err := Open(filepath.Join(dir, "executor.log"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := l.Write([]byte("a new line\n")); err != nil {
				t.Error(err)
			}
			f, err := os.Open(l.path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			end := make([]byte, 11)
			if _, err := f.ReadAt(end, l.size-int64(len(end))); err != nil {
				t.Error(err)
			}
			return string(end), fmt.Sprint(l.Damage())
		},
		Damage:    []string{"executor.log", "executor.log.1"},
		Rewritten: []string{"executor.log", "executor.log.1"},
		Worthless: []string{"executor.log.1"}, // the next rotation replaces it
	}.Test(t)
}

func TestAFolderInPlaceOfThePreviousLogDoesNotStopTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "executor.log")
	if err := os.MkdirAll(filepath.Join(path+".1", "of a user"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	for range maxBytes/len(line) + 1 {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := filepath.Glob(path + ".1.damaged-*/of a user"); err != nil || len(kept) != 1 {
		t.Errorf("the folder is not kept: %q, %v", kept, err)
	}
}

func TestALogThatCannotRotateContinuesLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "executor.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.size = maxBytes
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("lost\n")); err == nil {
		t.Error("a log without a folder reports no error")
	}
	if err := os.Rename(dir+"-gone", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("kept\n")); err != nil {
		t.Errorf("after the folder is back: %v", err)
	}
	if text, err := os.ReadFile(l.path); err != nil || string(text) != "kept\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
}
