package checkpoint

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestACheckpointHasOneLock(t *testing.T) { synctest.Test(t, hasOneLock) }

func hasOneLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made when missing")
	unlock, err := Lock(dir, "Mine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir, "Mine"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second lock: %v, want ErrBusy", err)
	}
	other, err := Lock(dir, "mine") // a different name, also where file names ignore case
	if err != nil {
		t.Fatal(err)
	}
	other()
	if names, err := Names(dir); err != nil || len(names) != 0 {
		t.Errorf("a lock counts as a checkpoint: %q, %v", names, err)
	}
	unlock()
	again, err := Lock(dir, "Mine")
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	again()
}
