package checkpoint

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
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

// The system ends a killed relay, and with it the relay's locks, only after a moment.
func TestALockThatIsReleasedSoonIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		busy  bool
	}{
		"soon":     {lockWait - 20*time.Millisecond, false},
		"too late": {lockWait + 20*time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				dying, err := Lock(dir, "run")
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				time.AfterFunc(c.after, func() { dying(); close(ended) })
				unlock, err := Lock(dir, "run")
				if busy := errors.Is(err, ErrBusy); busy != c.busy || err != nil && !busy {
					t.Fatalf("the next call: %v", err)
				}
				if err == nil {
					unlock()
				}
				<-ended
			})
		})
	}
}
