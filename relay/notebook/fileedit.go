package notebook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"colabrelay/shared/keep"
)

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
	f.mu.Lock()
	defer f.mu.Unlock()
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
	return Change{Before: before.Document, After: &edited, Written: true}, nil
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
