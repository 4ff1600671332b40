package notebook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
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

// File is a notebook on disk that other programs edit too. It is for one goroutine at a time.
type File struct {
	path  string // of the real file, links resolved
	lock  string
	isNew bool // the file may be missing

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
	Before, After *Document // Before is the file as Edit found it, and After the same one if nothing was written
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
	for piece := make([]byte, 256<<10); len(want) > 0; {
		n, err := io.ReadFull(file, piece[:min(len(piece), len(want))])
		if err != nil || !bytes.Equal(piece[:n], want[:n]) {
			return nil
		}
		want = want[n:]
	}
	return info
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

// Edit changes the file: it locks it, reads it again, calls change with that document, and writes
// the result if its bytes differ, by a rename. An error of change leaves the file as it is and is
// returned as it is. change is called again, with a new document, if another program writes the
// file meanwhile. With expectDigest the file must have that digest, else the error is ErrChanged;
// it is ErrBusy if another relay holds the lock for too long.
func (f *File) Edit(ctx context.Context, expectDigest string, change func(*Document) error) (Change, error) {
	unlock, err := f.acquire(ctx)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	known, restless := f.last.Document, false
	for range maxAttempts {
		done, err := f.attempt(ctx, expectDigest, change)
		if errors.Is(err, errOvertaken) {
			restless = true
			continue
		}
		if err == nil {
			done.Notes = append(notesOf(known, done, restless), done.After.invalid()...)
		}
		return done, err
	}
	return Change{}, fmt.Errorf("%w: close it there, or wait until it is saved, and try again", ErrRestless)
}

// largeFile is the size in bytes from which on an edit collects garbage first. That takes a
// millisecond, because a notebook has no pointers.
const largeFile = 16 << 20

// errOvertaken means that another program wrote the file during an attempt.
var errOvertaken = errors.New("another program wrote the notebook")

// attempt makes one edit of the file as it is now.
func (f *File) attempt(ctx context.Context, expectDigest string, change func(*Document) error) (Change, error) {
	before, err := f.load(ctx)
	if err != nil {
		return Change{}, err
	}
	if expectDigest != "" && before.Digest() != expectDigest {
		return Change{}, fmt.Errorf("%w: its digest is %s, not %s: read the cells again", ErrChanged, before.Digest(), expectDigest)
	}
	f.last = before
	if len(before.Bytes()) > largeFile {
		runtime.GC() // else the versions before this one double the memory that edits need
	}
	edited := *before.Document
	if err := change(&edited); err != nil {
		return Change{}, err
	}
	if err := ctx.Err(); err != nil {
		return Change{}, err
	}
	if bytes.Equal(edited.Bytes(), before.Bytes()) {
		return Change{Before: before.Document, After: before.Document}, nil
	}
	if err := f.replace(before, &edited); err != nil {
		return Change{}, err
	}
	return Change{Before: before.Document, After: &edited}, nil
}

// slowSize is the size in bytes above which a notebook is slow to open in Jupyter and Colab.
const slowSize = 50_000_000

// notesOf describes what other programs did: since the document that is known, which may be nil,
// and during the edit. It also notes an edit that makes the notebook very large.
func notesOf(known *Document, done Change, restless bool) (notes []string) {
	before, after := done.Before.Bytes(), done.After.Bytes()
	switch {
	case restless:
		notes = append(notes, "Another program saved the notebook during this edit. The edit was made to what that program saved.")
	case known != nil && !bytes.Equal(known.Bytes(), before):
		notes = append(notes, "Another program has changed the notebook since it was last read. Its changes are kept.")
	}
	if len(before) <= slowSize && len(after) > slowSize {
		notes = append(notes, "The notebook has over 50 MB now, and opens slowly in Jupyter and Colab: clear outputs that nobody needs, or save pictures and data in files.")
	}
	return notes
}

// lockPath returns the file whose lock all relays take while they edit the notebook at path.
func lockPath(path, lockDir string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(filepath.ToSlash(path)))) // two spellings of one file share the lock
	return filepath.Join(lockDir, "notebook-"+hex.EncodeToString(sum[:12])+".lock")
}

// acquire takes the lock. Its file stays, because deleting it would let two callers have it.
func (f *File) acquire(ctx context.Context) (unlock func(), err error) {
	waiting, done := context.WithTimeout(ctx, maxLockWait)
	defer done()
	unlock, err = keep.Lock(waiting, f.lock)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case errors.Is(err, keep.ErrLocked):
		return nil, fmt.Errorf("%q: %w for over %.0f s: wait until it has ended, then try again", f.path, ErrBusy, maxLockWait.Seconds())
	}
	return unlock, err
}

// The version of the format that Text writes. Since 4.5, each cell has an id.
const (
	major = 4
	minor = 5
)

// Notebook is a notebook for Python that is to be written.
type Notebook struct {
	Cells   []RunCell
	Widgets map[string]output.JSON // the states of widgets that outputs show
}

// RunCell is a code cell with its outputs.
type RunCell struct {
	// Seed determines the cell's id: equal notebooks have equal ids.
	Seed           string
	Source         string
	ExecutionCount int // the kernel's In[n]; 0 for none
	Outputs        []*output.Output
}

// Text returns the file as nbformat itself writes it: keys in order, one space of indentation,
// texts as lists of lines.
func (n Notebook) Text() ([]byte, error) {
	cells, taken := []any{}, map[string]bool{}
	for _, c := range n.Cells {
		cells = append(cells, c.object(taken))
	}
	metadata := map[string]any{
		"kernelspec":    map[string]any{"display_name": "Python 3", "language": "python", "name": "python3"},
		"language_info": map[string]any{"name": "python"},
	}
	if len(n.Widgets) > 0 {
		metadata["widgets"] = widgetMetadata(n.Widgets)
	}
	text, err := jupyterStyle.write(nil, map[string]any{
		"cells": cells, "nbformat": major, "nbformat_minor": minor, "metadata": metadata,
	}, "")
	return append(text, '\n'), err
}

func (c RunCell) object(taken map[string]bool) map[string]any {
	outputs := []any{}
	for _, o := range c.Outputs {
		outputs = append(outputs, o.Object())
	}
	return map[string]any{
		"cell_type": "code", "id": seededID(c.Seed, taken), "metadata": map[string]any{},
		"source": output.SplitLines(c.Source), "execution_count": output.Count(c.ExecutionCount), "outputs": outputs,
	}
}

// seededID returns an id of eight hexadecimal digits that is not taken yet.
func seededID(seed string, taken map[string]bool) string {
	for {
		sum := sha256.Sum256([]byte(seed))
		id := hex.EncodeToString(sum[:4])
		if !taken[id] {
			taken[id] = true
			return id
		}
		seed += "+"
	}
}
