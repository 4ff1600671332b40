package notebook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/bounded"
)

// Errors of a File.
var (
	// ErrChanged means that the file is not the one that the caller has seen.
	ErrChanged = errors.New("the notebook has changed")
	// ErrBusy means that another call or relay is writing the file for longer than maxLockWait.
	ErrBusy = errors.New("another call or relay is writing this notebook")
	// ErrRestless means that other programs write the file each time that an edit is about to.
	ErrRestless = errors.New("other programs keep writing this notebook")
)

const (
	maxLockWait = 10 * time.Second
	// maxAttempts bounds how often one edit is tried again because another program wrote the file.
	maxAttempts = 20
	// settled is the age from which on a file with the same time and size is the same file: the
	// times of some file systems have steps of two seconds.
	settled = 3 * time.Second
	// maxUnsettled is how long a file that cannot be read is read again because it was written
	// just now: an editor may be in the middle of writing it.
	maxUnsettled = time.Second
)

// File is a notebook on disk that other programs edit too. Its methods are safe for concurrent
// use.
type File struct {
	path  string // of the real file, links resolved
	lock  string
	isNew bool // the file may be missing

	mu   sync.Mutex
	last snapshot // what was last read or written; zero before that

	// For tests: other programs may write the file here.
	beforeCheck, beforeReplace func()
}

// snapshot is a file as it was read. Its document is never changed.
type snapshot struct {
	*Document
	info fs.FileInfo // nil if there is no file
	at   time.Time   // before it was read
}

// Change is what an Edit did.
type Change struct {
	Before, After *Document // Before is the file as Edit found it; both are equal if nothing was written
	Written       bool      // the file's bytes differ from Before
	Notes         []string  // sentences about edits of other programs
}

// OpenFile returns the notebook at path, which must exist; a link leads to the real file.
// lockDir has the locks that all relays of this user share. The error wraps fs.ErrNotExist if
// there is no file; it says so if even its folder is missing.
func OpenFile(path, lockDir string) (*File, error) { return openFile(path, lockDir, false) }

// OpenOrNew is OpenFile, but the file may be missing: then Read returns an empty notebook of
// nbformat 4.5, and the first Edit that changes it creates the file. It never replaces a file that
// appeared meanwhile. The folder must exist.
func OpenOrNew(path, lockDir string) (*File, error) { return openFile(path, lockDir, true) }

func openFile(path, lockDir string, isNew bool) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening a notebook: %w", err)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("there is no folder %q: %w", filepath.Dir(path), err)
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isLink(path):
		return nil, fmt.Errorf("%q is a link to a file that is missing: %w", path, err)
	case errors.Is(err, fs.ErrNotExist) && isNew:
		real = filepath.Join(folder, filepath.Base(path))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no notebook %q: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("opening the notebook %q: %w", path, err)
	}
	return &File{path: real, lock: lockPath(real, lockDir), isNew: isNew}, nil
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// Path returns the path of the real file.
func (f *File) Path() string { return f.path }

// Read returns the notebook. It is kept while the file does not change. Change only copies of it.
func (f *File) Read() (*Document, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.load(context.Background())
	if err != nil {
		return nil, err
	}
	f.last = now
	return now.Document, nil
}

// load returns the file as it is now. It parses it only if it is not the last one.
func (f *File) load(ctx context.Context) (snapshot, error) {
	for began := time.Now(); ; {
		now, err := f.loadOnce()
		unsettled := errors.Is(err, ErrNotNotebook) && now.info != nil && time.Since(now.info.ModTime()) < maxUnsettled
		if err == nil || !unsettled || time.Since(began) > maxUnsettled || !pause(ctx, 20*time.Millisecond) {
			return now, err
		}
	}
}

// pause waits for a while, and reports whether ctx is still alive then.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *File) loadOnce() (snapshot, error) {
	now := snapshot{at: time.Now()}
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.isNew:
		now.Document = New()
		return now, nil
	case errors.Is(err, fs.ErrNotExist):
		return now, fmt.Errorf("there is no notebook %q any more: %w", f.path, fs.ErrNotExist)
	case err != nil:
		return now, fmt.Errorf("reading the notebook: %w", err)
	case !info.Mode().IsRegular():
		return now, fmt.Errorf("%w: %q is no regular file", ErrNotNotebook, f.path)
	}
	now.info = info
	if f.last.isStill(info) {
		now.Document = f.last.Document
		return now, nil
	}
	return f.parse(now)
}

// isStill reports whether a file is surely the one of the snapshot. A file that was written less
// than settled before it was read may have been written again without a change of its time.
func (s snapshot) isStill(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime()) &&
		s.at.Sub(info.ModTime()) > settled
}

// parse reads and parses the file, unless it still has the bytes of the last one.
func (f *File) parse(now snapshot) (snapshot, error) {
	if f.last.Document != nil {
		if info := hasBytes(f.path, f.last.Bytes()); info != nil {
			now.info, now.Document = info, f.last.Document
			return now, nil
		}
	}
	text, info, err := readWhole(f.path)
	if err != nil {
		return now, fmt.Errorf("reading the notebook: %w", err)
	}
	now.info = info
	now.Document, err = Parse(text)
	return now, err
}

// hasBytes returns the information about a file with this content, or nil if it has another one.
// It does not read the whole file into memory.
func hasBytes(path string, want []byte) fs.FileInfo {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() != int64(len(want)) {
		return nil
	}
	for piece := make([]byte, 256<<10); ; {
		n, err := file.Read(piece)
		switch {
		case n > len(want) || !bytes.Equal(piece[:n], want[:n]):
			return nil
		case err == io.EOF && n == len(want):
			return info
		case err != nil:
			return nil
		}
		want = want[n:]
	}
}

// readWhole reads a file with the information that belongs to these bytes.
func readWhole(path string) ([]byte, fs.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > MaxBytes {
		return nil, info, bounded.TooLong(MaxBytes)
	}
	text := make([]byte, info.Size())
	n, err := io.ReadFull(file, text)
	if errors.Is(err, io.ErrUnexpectedEOF) { // another program has shortened it: its time has changed too
		err = nil
	}
	return text[:n], info, err
}
