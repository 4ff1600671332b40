package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"
)

// folder is where the next execution is kept, with its files open. A spare one is
// made while the kernel is idle, because making it takes a tenth of a quick run.
type folder struct {
	dir    string
	state  *os.File
	events *os.File // the log's first segment
}

func newFolder(parent string) (*folder, error) {
	f, err := unmadeFolder(parent)
	if err != nil {
		return nil, err
	}
	if err = os.Mkdir(f.dir, 0o700); errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	if f.state, err = openAppend(filepath.Join(f.dir, stateFileName)); err == nil {
		f.events, err = openAppend(newSegment(f.dir, 0, 0).path)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// unmadeFolder names a folder that is made once the disk has room for it.
func unmadeFolder(parent string) (*folder, error) {
	id, err := uuid.NewRandom()
	return &folder{dir: filepath.Join(parent, id.String())}, err
}

// openAppend opens a file for appending, with one system call: os.OpenFile takes six, to
// find that a file on a disk needs no poller.
func openAppend(path string) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_APPEND|syscall.O_CLOEXEC, 0o600)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case syscall.EINTR: // on some network file systems
		default:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func (f *folder) remove() {
	if f.state != nil {
		f.state.Close()
	}
	if f.events != nil {
		f.events.Close()
	}
	os.RemoveAll(f.dir)
}

// isSpare reports whether dir is a spare folder that was never used: it has only the two
// files, which are empty.
func isSpare(dir string) bool {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, infoErr := e.Info()
		own := e.Name() == stateFileName || e.Name() == filepath.Base(newSegment(dir, 0, 0).path)
		if infoErr != nil || !own || !info.Mode().IsRegular() || info.Size() > 0 {
			return false
		}
	}
	return err == nil
}

// nextFolderLocked returns the spare folder, or a new one.
func (j *Journal) nextFolderLocked() (*folder, error) {
	f := j.spare
	j.spare = nil
	if j.reserve.missing() {
		if _, err := j.restoreLocked(); err != nil {
			j.log.Error("restoring the deleted execution log", "err", err)
		}
	}
	if f != nil {
		return f, nil
	}
	f, err := newFolder(j.cfg.Dir)
	if isFull(err) {
		return unmadeFolder(j.cfg.Dir)
	}
	return f, err
}

// MakeSpare prepares a folder for the next execution, unless there is one already. Only
// one goroutine may call it. If it can't be made, Create tries again and reports why.
func (j *Journal) MakeSpare() {
	j.mu.Lock()
	exists := j.spare != nil
	j.mu.Unlock()
	if exists {
		return
	}
	f, err := newFolder(j.cfg.Dir) // without the lock: a submit need not wait for it
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spare = f
}

// RemoveSpare undoes MakeSpare.
func (j *Journal) RemoveSpare() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.spare != nil {
		j.spare.remove()
		j.spare = nil
	}
}
