package enrolldir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"colabrelay/shared/keep"

	"github.com/gofrs/flock"
)

func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAFolderBelongsToOneExecutor(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	if _, err := Open(path); !errors.Is(err, keep.ErrLocked) {
		t.Errorf("a second executor: %v", err)
	}
	lock := flock.New(filepath.Join(path, lockFile))
	if free, err := lock.TryRLock(); free || err != nil {
		t.Errorf("a cell finds it free: %v, %v", free, err)
	}
	d.Close("")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestCloseTouchesNoFileOfOthers(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	other := filepath.Join(path, "somebody's")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Close("")
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestOnlyARegularFileIsAGrant(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink("/etc/hostname", path) },
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		path := folder(t)
		d := open(t, path)
		if err := put(filepath.Join(path, grantFile)); err != nil {
			t.Fatal(err)
		}
		if text, err := d.AwaitGrant(t.Context(), 100); err == nil || text != "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		d.Close("")
	}
}
