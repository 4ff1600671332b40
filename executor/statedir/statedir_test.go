package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheStateDirIsForItsUserOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o755))
	s, err := Open(dir)
	must(t, err)
	defer s.Close()
	for path, want := range map[string]os.FileMode{dir: 0o700, s.Path("instance.json"): 0o600, s.Path("lock"): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
}

func TestTwoExecutorsNeverShareAStateDir(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	must(t, err)
	synctest.Test(t, func(t *testing.T) { _, err = Open(dir) })
	if err == nil || !strings.Contains(err.Error(), "another executor") {
		t.Fatalf("the second one gets %v", err)
	}
	if !InUse(dir) {
		t.Error("InUse is false while it is open")
	}
	s.Close()
	if InUse(dir) || InUse(filepath.Join(dir, "missing")) {
		t.Error("InUse is true of a closed or missing one")
	}
	again, err := Open(dir)
	must(t, err)
	again.Close()
}

// Executors of one VM's backup, clone or copied folder must not both run a repeated request.
func TestACopiedStateDirGetsANewInstanceID(t *testing.T) {
	top := t.TempDir()
	first := filepath.Join(top, "first")
	s, err := Open(first)
	must(t, err)
	s.Close()
	if birth(first).IsZero() {
		t.Log("this file system does not record when a folder was created: a copy is not known as one")
		return
	}
	second, moved := filepath.Join(top, "second"), filepath.Join(top, "moved")
	for later := filepath.Join(top, "later"); ; { // the times that Linux records are some milliseconds apart
		must(t, os.Mkdir(later, 0o700))
		born := birth(later)
		must(t, os.Remove(later))
		if !born.Equal(birth(first)) {
			break
		}
	}
	must(t, os.CopyFS(second, os.DirFS(first)))
	must(t, os.Rename(first, moved))
	var ids []string
	for _, dir := range []string{moved, second, second} {
		d, err := Open(dir)
		must(t, err)
		ids = append(ids, d.InstanceID())
		if d.Copied() != (len(ids) == 2) {
			t.Errorf("Copied of %q is %t at Open %d", dir, d.Copied(), len(ids))
		}
		d.Close()
	}
	if ids[0] != s.InstanceID() || ids[1] == ids[0] || ids[2] != ids[1] {
		t.Errorf("the id was %q; after the move it is %q, of the copy %q", s.InstanceID(), ids[0], ids[1:])
	}
}

func TestRestoreKeepsTheInstanceID(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s, err := Open(dir)
	must(t, err)
	if s.Deleted() {
		t.Error("Deleted is true of a new one")
	}
	must(t, os.RemoveAll(dir))
	if !s.Deleted() {
		t.Error("Deleted is false after it was removed")
	}
	must(t, os.MkdirAll(dir, 0o700)) // as by another part of the executor, which writes its files again
	if err := s.Restore(func() error { return os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) || !s.Deleted() {
		t.Errorf("while the rest can't be written, Restore gives %v, and Deleted %t", err, s.Deleted())
	}
	must(t, s.Restore(func() error {
		if _, err := os.Stat(s.Path(instanceFile)); err == nil {
			t.Error("instance.json is there before the rest")
		}
		return nil
	}))
	id := s.InstanceID()
	if s.Deleted() || !InUse(dir) {
		t.Error("it is not locked again")
	}
	s.Close()
	again, err := Open(dir)
	must(t, err)
	defer again.Close()
	if again.InstanceID() != id {
		t.Errorf("the id is %s, was %s", again.InstanceID(), id)
	}
}
