package enrolldir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another executor waits there") {
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

func TestCloseLeavesTheReasonAlone(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	for _, err := range []error{d.WriteKey("k"), d.WriteAnswer("a"), os.WriteFile(filepath.Join(path, grantFile), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d.Close("it is full")
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 1 || entries[0].Name() != errorFile {
		t.Fatalf("left are %v, %v", entries, err)
	}
	info, _ := entries[0].Info()
	text, err := os.ReadFile(filepath.Join(path, errorFile))
	if string(text) != "\"it is full\"\n" || err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the reason is %q with mode %v, %v", text, info.Mode(), err)
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

func TestAGrantIsAwaitedUntilTheContextEnds(t *testing.T) {
	path := folder(t)
	d := open(t, path)
	defer d.Close("")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the cause")
	time.AfterFunc(2*poll, func() { cancel(cause) })
	if text, err := d.AwaitGrant(ctx, 10); err != cause || text != "" {
		t.Errorf("without a grant: %q, %v", text, err)
	}
	for size, want := range map[int]bool{0: true, 10: true, 11: false, 1 << 20: false} {
		if err := os.WriteFile(filepath.Join(path, grantFile), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := d.AwaitGrant(t.Context(), 10); (err == nil) != want || want && len(text) != size {
			t.Errorf("%d bytes: %d, %v", size, len(text), err)
		}
	}
}

func TestOnlyARegularFileIsAGrant(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
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
