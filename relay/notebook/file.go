package notebook

import (
	"context"
	"errors"
)

// Errors of a File.
var (
	// ErrChanged means that the file is not the one that the caller has seen.
	ErrChanged = errors.New("the notebook has changed")
	// ErrBusy means that another call or relay is writing the file for longer than maxLockWait.
	ErrBusy = errors.New("another call or relay is writing this notebook")
)

// File is a notebook on disk that other programs edit too. Its methods are safe for concurrent
// use.
type File struct {
	path string // of the real file, links resolved
}

// Change is what an Edit did.
type Change struct {
	Before, After *Document // Before is the file as Edit found it; both are equal if nothing was written
	Written       bool      // the file's bytes differ from Before
	Notes         []string  // sentences: the file was edited elsewhere since this File last read or wrote it, ids were repaired
}

// OpenFile returns the notebook at path, which must exist; a link leads to the real file.
// lockDir has the locks that all relays of this user share. The error wraps fs.ErrNotExist if
// there is no file; it says so if even its folder is missing.
func OpenFile(path, lockDir string) (*File, error) { return &File{path: path}, errUnfinished }

// OpenOrNew is OpenFile, but the file may be missing: then Read returns an empty notebook of
// nbformat 4.5, and the first Edit that changes it creates the file. It never replaces a file that
// appeared meanwhile. The folder must exist.
func OpenOrNew(path, lockDir string) (*File, error) { return &File{path: path}, errUnfinished }

// Path returns the path of the real file.
func (f *File) Path() string { return f.path }

// Read returns the notebook. It is kept while the file does not change. Change only copies of it.
func (f *File) Read() (*Document, error) { return nil, errUnfinished }

// Edit changes the file: it locks it, reads it again, calls change with that document, and writes
// the result if its bytes differ, by a rename. An error of change leaves the file as it is and is
// returned as it is. change is called again, with a new document, if another program writes the
// file meanwhile. With expectDigest the file must have that digest, else the error is ErrChanged;
// it is ErrBusy if another relay holds the lock for too long.
func (f *File) Edit(ctx context.Context, expectDigest string, change func(*Document) error) (Change, error) {
	return Change{}, errUnfinished
}
