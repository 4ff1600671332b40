package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestAsideOfNothingIsAnError(t *testing.T) {
	if kept, err := Aside(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) || kept != "" {
		t.Errorf("%q, %v", kept, err)
	}
}

type counts struct {
	Version int            `json:"version"`
	Of      map[string]int `json:"of"`
}

func countsIn(dir string) File[counts] {
	return File[counts]{Path: filepath.Join(dir, "made when missing", "counts.json"), What: "the counts", Max: 1000, Version: 1}
}

func (c *counts) add(name string) error {
	if c.Of == nil {
		c.Of = map[string]int{}
	}
	c.Version = 1
	c.Of[name]++
	return nil
}

// The clock is a fake one, so that no caller's wait for the lock ends on a busy machine.
func TestNoChangeIsLost(t *testing.T) { synctest.Test(t, losesNoChange) }

func losesNoChange(t *testing.T) {
	dir := t.TempDir()
	if c, err := countsIn(dir).Read(); err != nil || c.Of != nil {
		t.Errorf("before the first change: %v, %v", c, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("reading made %v", left)
	}
	const callers, changes = 4, 10
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range changes {
				if _, err := countsIn(dir).Change(func(c *counts) error { return c.add("a") }); err != nil {
					t.Error(err)
				}
				if c, err := countsIn(dir).Read(); err != nil || c.Of["a"] < 1 {
					t.Errorf("%v, %v", c, err)
				}
			}
		})
	}
	group.Wait()
	if c, err := countsIn(dir).Read(); err != nil || c.Of["a"] != callers*changes {
		t.Errorf("%v, %v", c, err)
	}
	if info, err := os.Stat(countsIn(dir).Path); err != nil || info.Mode().Perm()&0o077 != 0 && filepath.Separator == '/' {
		t.Errorf("%v, %v", info, err)
	}
}

func TestADamagedFileIsKeptAndReported(t *testing.T) {
	for _, content := range []string{"", "{", "null", `{"version":0}`, `{"version":"1"}`, `{"version":1,"of":{}}` + strings.Repeat(" ", 1000)} {
		f := countsIn(t.TempDir())
		if err := WriteFile(f.Path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if c, err := f.Read(); !errors.Is(err, ErrDamaged) || c.Version != 0 {
			t.Errorf("%.40q: read as %v, %v", content, c, err)
		}
		refused := errors.New("no")
		if _, err := f.Change(func(c *counts) error { return c.add("a") }); err != nil {
			t.Errorf("%.40q: %v", content, err)
		}
		if err := os.WriteFile(f.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		damage, err := f.Change(func(*counts) error { return refused })
		if !errors.Is(err, refused) || !errors.Is(damage, ErrDamaged) {
			t.Errorf("%.40q: %v, %v", content, damage, err)
		}
		kept, _ := filepath.Glob(f.Path + ".damaged-*")
		for _, name := range kept {
			if text, err := os.ReadFile(name); err != nil || string(text) != content {
				t.Errorf("%.40q is kept as %.40q, %v", content, text, err)
			}
		}
		if len(kept) != 2 || !strings.Contains(damage.Error(), fmt.Sprintf("%q", kept[1])) {
			t.Errorf("%q, %v", kept, damage)
		}
	}
}

func TestAFileOfANewerReleaseStays(t *testing.T) {
	f := countsIn(t.TempDir())
	const content = `{"version":2,"other":true}`
	if err := WriteFile(f.Path, []byte(content)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Change(func(c *counts) error { return c.add("a") })
	if text, readErr := os.ReadFile(f.Path); !errors.Is(err, ErrNewer) || readErr != nil || string(text) != content {
		t.Errorf("%v; the file has %q, %v", err, text, readErr)
	}
}

func TestAChangeThatIsNotWrittenChangesNothing(t *testing.T) {
	f := countsIn(t.TempDir())
	add := func(c *counts) error { return c.add("a") }
	if _, err := f.Change(add); err != nil {
		t.Fatal(err)
	}
	full := f
	full.Write = func(string, []byte) error { return errors.New("no space left on device") }
	_, fullErr := full.Change(add)
	_, longErr := f.Change(func(c *counts) error { return c.add(strings.Repeat("long", 1000)) })
	for _, err := range []error{fullErr, longErr} {
		if c, readErr := f.Read(); !errors.Is(err, ErrNotWritten) || readErr != nil || c.Of["a"] != 1 || len(c.Of) != 1 {
			t.Errorf("%v; there is %v, %v", err, c, readErr)
		}
	}
}

func TestALockHasOneOwner(t *testing.T) { synctest.Test(t, hasOneOwner) }

func hasOneOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made when missing", "lock")
	if IsLocked(path) {
		t.Error("a lock that does not exist is taken")
	}
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), lockLimit)
	defer cancel()
	_, lockErr := Lock(waiting, path)
	_, readErr := RLock(waiting, path)
	_, tryErr := TryLock(path)
	for _, err := range []error{lockErr, readErr, tryErr} {
		if !errors.Is(err, ErrLocked) {
			t.Errorf("a second owner: %v", err)
		}
	}
	if !IsLocked(path) {
		t.Error("the lock seems free")
	}
	unlock()
	if IsLocked(path) {
		t.Error("the lock seems taken")
	}
	if unlock, err = RLock(t.Context(), path); err != nil || IsLocked(path) {
		t.Errorf("a reader: %v, locked %v", err, IsLocked(path))
	}
	unlock()
}

func TestALockThatIsRemovedExcludesOthersAndLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	ended, end := context.WithCancel(t.Context())
	end()
	for range 2 {
		unlock, err := LockAndRemove(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := LockAndRemove(ended, path); !errors.Is(err, ErrLocked) {
			t.Errorf("a second lock: %v", err)
		}
		unlock()
		if _, err := os.Lstat(path); err == nil {
			t.Error("its file is left")
		}
	}
}
