package statedir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheInstanceIDIsMadeOncePerStateDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var ids []string
	for range 2 {
		s, err := Open(dir)
		must(t, err)
		ids = append(ids, s.InstanceID())
		s.Close()
	}
	other, err := Open(t.TempDir())
	must(t, err)
	defer other.Close()
	if ids[0] != ids[1] || ids[0] == other.InstanceID() {
		t.Fatalf("ids are %q, and %q in another dir", ids, other.InstanceID())
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

func TestTheLockOfAProcessThatIsEndingIsAwaited(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	must(t, err)
	ended := time.AfterFunc(lockTime/4, s.Close)
	defer ended.Stop()
	next, err := Open(dir)
	must(t, err)
	next.Close()
}

func TestTwoExecutorsNeverShareAStateDir(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	must(t, err)
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "another executor") {
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

func TestABrokenInstanceFileIsAnErrorAndNotANewInstance(t *testing.T) {
	for _, content := range []string{"", "{", `{"instance_id":"x"}`} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "instance.json"), []byte(content), 0o600))
		if s, err := Open(dir); err == nil {
			t.Errorf("content %q gives instance %q", content, s.InstanceID())
		}
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
	must(t, s.Restore())
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
