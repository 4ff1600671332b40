package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/shared/filename"
	"colabrelay/shared/keep"
	"colabrelay/shared/partfile"
)

// openLocal opens the destination folder of a download, and creates it when missing.
func openLocal(dir string) (*os.Root, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder %q: %w", dir, err)
	}
	switch err := os.MkdirAll(dir, 0o755); {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EINVAL):
		// A file or a dangling link has this name.
		return nil, fmt.Errorf("%w: %q cannot be a folder: %w", ErrLocalPath, dir, err)
	case err != nil:
		return nil, fmt.Errorf("creating the folder %q: %w", dir, markDiskFull(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %q: %w", dir, err)
	}
	return root, nil
}

// absolute returns the path of name in root, for people.
func absolute(root *os.Root, name string) string {
	return filepath.Join(root.Name(), filepath.FromSlash(name))
}

// makeFolder creates a folder in root and those above it. If one of them is a link that
// leaves root, the error is ErrForbiddenName.
func makeFolder(root *os.Root, name string) error {
	err := root.MkdirAll(name, 0o755)
	if info, statErr := root.Stat(name); statErr == nil && info.IsDir() {
		return nil
	}
	if leavesRoot(root, name) {
		return fmt.Errorf("%w: a link in the path %q leads out of %q", ErrForbiddenName, name, root.Name())
	}
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: cannot create the folder %q: it, or a folder above it, is a file", ErrLocalPath, absolute(root, name))
	}
	return fmt.Errorf("creating the folder %q: %w", absolute(root, name), markDiskFull(err))
}

// leavesRoot reports whether a link in the path name cannot be followed inside root.
func leavesRoot(root *os.Root, name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if info, err := root.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			_, err := root.Stat(at)
			return err != nil
		}
	}
	return false
}

// hiddenName returns the name in root of a file that the relay keeps about name. No other
// program uses it.
func hiddenName(name, suffix string) string {
	if foldsCase {
		name = strings.ToLower(name)
	}
	return fmt.Sprintf("%s%.10x%s", hiddenPrefix, sha256.Sum256([]byte(name)), suffix)
}

const hiddenPrefix = ".colab-relay-"

// lockWait is how long lockFile waits for another transfer. A killed relay holds its locks until the
// system has ended all its threads, which takes a moment on a busy computer.
const lockWait = 2 * time.Second

const lockSuffix = ".lock"

// lockFile locks a file, which it creates, and which unlock removes. shown is what is reserved, for
// people.
func lockFile(file, shown string) (unlock func(), err error) {
	waiting, done := context.WithTimeout(context.Background(), lockWait)
	defer done()
	unlock, err = keep.LockAndRemove(waiting, file)
	switch {
	case errors.Is(err, keep.ErrLocked):
		return nil, fmt.Errorf("%q: %w", shown, ErrBusy)
	case err != nil:
		return nil, fmt.Errorf("locking %q: %w", shown, markDiskFull(err))
	}
	return unlock, nil
}

// place renames the file part to name or, if that is taken, to the first free numbered
// name. It replaces another file only if overwrite is set.
func place(root *os.Root, part, name string, overwrite bool) (string, error) {
	if overwrite && root.Rename(part, name) == nil {
		return name, nil
	}
	for i := 0; ; i++ {
		to := filename.Numbered(name, i)
		err := partfile.Place(root, part, to)
		if err == nil || !errors.Is(err, fs.ErrExist) || i > maxEntries {
			return to, err
		}
	}
}

// maxAlike bounds how many numbered names are compared to find the same file.
const maxAlike = 100

// alike returns the local files that may equal a remote one, judged by name and size: name and, unless
// Overwrite is set, its numbered names up to the first free one.
func (j *job) alike(root *os.Root, name string, size int64) (names []string) {
	for i := range maxAlike {
		at := filename.Numbered(name, i)
		info, err := root.Lstat(at)
		if err != nil {
			break
		}
		if info.Mode().IsRegular() && info.Size() == size {
			names = append(names, at)
		}
		if j.options.Overwrite {
			break
		}
	}
	return names
}

// findSame returns the first of the named files whose first size bytes have this SHA-256, or "". One that
// cannot be read is not the same.
func findSame(ctx context.Context, root *os.Root, names []string, size int64, sha string) (string, error) {
	for _, name := range names {
		f, err := root.Open(name)
		if err != nil {
			continue
		}
		got, err := readDigest(ctx, f, size, nil)
		f.Close()
		if err == nil && got == sha {
			return name, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
	return "", nil
}

// Bounds of LeftOut: a VM can have any number of such files, in any depth.
const (
	maxLeftOut      = 10
	maxLeftOutRunes = 1_500 // of the paths in its note, which others shorten to a line
)

// LeftOut are the files and folders of a download that were left out because programs on this
// computer may obey them because of their names. What is in such a folder is not counted.
type LeftOut struct {
	Paths []string // the first ones on the VM, at most maxLeftOut
	More  int      // the number of the others
}

func (l *LeftOut) add(path string) {
	if len(l.Paths) == maxLeftOut {
		l.More++
		return
	}
	l.Paths = append(l.Paths, path)
}

// Note describes them in one line; it is empty if there are none. remedy says how to download
// them.
func (l *LeftOut) Note(remedy string) string {
	if len(l.Paths) == 0 {
		return ""
	}
	var shown []string
	more, room := l.More, maxLeftOutRunes
	for _, path := range l.Paths {
		path = plain.QuoteName(path)
		if room -= utf8.RuneCountInString(path); room < 0 {
			more++ // whole or not at all: half of a path names another file
			continue
		}
		shown = append(shown, path)
	}
	if more > 0 {
		shown = append(shown, plain.Count(more, "further one"))
	}
	return fmt.Sprintf("left out, because programs on this computer may obey files of such names: %s; %s", strings.Join(shown, ", "), remedy)
}

// leavesOut reports whether a download of a folder has no file, or no folder, of this local name.
func (j *job) leavesOut(name string, folder bool) bool {
	if j.dotfiles && !j.noObeyed {
		return false
	}
	return filename.Obeyed(name) || !folder && filename.ObeyedFile(name)
}
