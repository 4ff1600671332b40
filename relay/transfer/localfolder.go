package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gofrs/flock"

	"colabrelay/shared/filename"
)

// openLocal opens the folder everything of a download goes to, made when missing.
func openLocal(dir string) (*os.Root, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder %q: %w", dir, err)
	}
	switch err := os.MkdirAll(dir, 0o755); {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EINVAL):
		// A file, or a link that leads nowhere, is in the way.
		return nil, fmt.Errorf("%w: %q can't be a folder: %w", ErrLocalPath, dir, err)
	case err != nil:
		return nil, fmt.Errorf("making the folder %q: %w", dir, markDiskFull(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %q: %w", dir, err)
	}
	return root, nil
}

// absolute is where name in root is, for people.
func absolute(root *os.Root, name string) string {
	return filepath.Join(root.Name(), filepath.FromSlash(name))
}

// localFault is err, marked as ErrLocalDisk where that is what it means.
func markDiskFull(err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrLocalDisk, err)
	}
	return err
}

// makeFolder makes a folder in root and those above it. A link among them that leads
// out of root is a forbidden name.
func makeFolder(root *os.Root, name string) error {
	err := root.MkdirAll(name, 0o755)
	if info, statErr := root.Stat(name); statErr == nil && info.IsDir() {
		return nil
	}
	if leavesRoot(root, name) {
		return fmt.Errorf("%w: a link on the way to %q leads out of %q", ErrForbiddenName, name, root.Name())
	}
	if err == nil {
		err = fs.ErrExist
	}
	return fmt.Errorf("making the folder %q: %w", absolute(root, name), markDiskFull(err))
}

// leadsOut reports whether a link on the way to name can't be followed inside root.
func leavesRoot(root *os.Root, name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if info, err := root.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			_, err := root.Stat(at)
			return err != nil
		}
	}
	return false
}

// hidden is a name in root for something of our own about name: nobody else's.
func hiddenName(name, suffix string) string {
	if foldsCase {
		name = strings.ToLower(name)
	}
	sum := sha256.Sum256([]byte(name))
	return ".colab-relay-" + hex.EncodeToString(sum[:10]) + suffix
}

// lockName keeps every other download, of any program, from name in root. It gives
// ErrBusy where one has it.
func lockName(root *os.Root, name string) (unlock func(), err error) {
	file := filepath.Join(root.Name(), hiddenName(name, ".lock"))
	for {
		l := flock.New(file, flock.SetPermissions(0o600))
		ok, err := l.TryLock()
		if err != nil {
			return nil, fmt.Errorf("locking %q: %w", absolute(root, name), markDiskFull(err))
		}
		if !ok {
			_ = l.Close()
			return nil, fmt.Errorf("%q: %w", absolute(root, name), ErrBusy)
		}
		// The one before may have removed the file between our open and our lock.
		held, heldErr := l.Stat()
		now, nowErr := os.Lstat(file)
		if heldErr == nil && nowErr == nil && os.SameFile(held, now) {
			return func() { release(l) }, nil
		}
		_ = l.Close()
	}
}

// release gives a lock back and removes its file: while it is still held where that can
// be done, so that no other lock on it is taken in between.
func release(l *flock.Flock) {
	if !onWindows {
		_ = os.Remove(l.Path())
	}
	_ = l.Close()
	if onWindows {
		_ = os.Remove(l.Path()) // fails while another has it open
	}
}

// place gives the file part its final name, or the first numbered one that is free,
// and never replaces another file unless overwrite is set.
func place(root *os.Root, part, name string, overwrite bool) (string, error) {
	if overwrite && root.Rename(part, name) == nil {
		return name, nil
	}
	for i := 0; ; i++ {
		to := filename.Numbered(name, i)
		err := placeAt(root, part, to)
		if err == nil || !errors.Is(err, fs.ErrExist) || i > maxEntries {
			return to, err
		}
	}
}

// placeAt is a rename that fails with fs.ErrExist where to exists. A hard link does
// that; where the file system has none, an empty file holds the place first.
func placeAt(root *os.Root, part, to string) error {
	err := root.Link(part, to)
	if err == nil {
		return root.Remove(part)
	}
	if _, statErr := root.Lstat(to); statErr == nil {
		return fs.ErrExist
	}
	f, err := root.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_ = f.Close()
	return root.Rename(part, to)
}

// findSame looks for a local file that is the remote one already: name or, unless
// overwrite is set, one of its numbered names up to the first free one. digest is
// asked only where a size fits.
func (j *job) findSame(ctx context.Context, root *os.Root, name string, size int64, digest func() (string, error)) (string, error) {
	for i := 0; i <= maxEntries; i++ {
		at := filename.Numbered(name, i)
		info, err := root.Lstat(at)
		if err != nil {
			return "", nil
		}
		if info.Mode().IsRegular() && info.Size() == size {
			same, err := j.isSame(ctx, root, at, size, digest)
			if same || err != nil {
				return at, err
			}
		}
		if j.options.Overwrite {
			return "", nil
		}
	}
	return "", nil
}

func (j *job) isSame(ctx context.Context, root *os.Root, name string, size int64, digest func() (string, error)) (bool, error) {
	want, err := digest()
	if err != nil {
		return false, err
	}
	got, err := j.localDigest(ctx, root, name, size)
	if err != nil && ctx.Err() != nil {
		return false, err
	}
	return err == nil && got == want, nil // one that is not readable is not ours to replace
}

// localDigest is the SHA-256 of the first size bytes of a file in root.
func (j *job) localDigest(ctx context.Context, root *os.Root, name string, size int64) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf, err := j.buffer(ctx)
	if err != nil {
		return "", err
	}
	defer j.free(buf)
	return readDigest(ctx, f, size, buf, nil)
}
