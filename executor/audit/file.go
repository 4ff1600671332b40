package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Limits bound what is kept. The zero value of a field means its default.
type Limits struct {
	FileBytes  int64 // of one file; 64 MiB
	Old        int   // full files that are kept, as PATH.1 (the newest) to PATH.4
	QueueBytes int   // of lines in memory that are not written yet; 4 MiB
}

// DefaultLimits keep 320 MiB on disk at most.
var DefaultLimits = Limits{FileBytes: 64 << 20, Old: 4, QueueBytes: 4 << 20}

func (l Limits) withDefaults() Limits {
	return Limits{
		FileBytes:  cmp.Or(l.FileBytes, DefaultLimits.FileBytes),
		Old:        cmp.Or(l.Old, DefaultLimits.Old),
		QueueBytes: cmp.Or(l.QueueBytes, DefaultLimits.QueueBytes),
	}
}

// file is the file on disk. One goroutine uses it.
type file struct {
	path   string
	limits Limits
	f      *os.File // nil while the file cannot be opened
}

// openFile opens the file and repairs its end. A file whose end is nothing that an executor
// wrote is set aside like a full one.
func openFile(path string, limits Limits, log *slog.Logger) (f *file, was ending, err error) {
	f = &file{path: path, limits: limits}
	if err := f.open(); err != nil {
		return nil, was, err
	}
	was, err = repair(f.f)
	if errors.Is(err, errNotALog) {
		log.Warn("the audit log was set aside", "component", "audit", "path", f.old(1), "err", err)
		err = f.rotate()
	}
	if err != nil {
		f.close()
		return nil, was, err
	}
	return f, was, nil
}

// open opens or creates the file, for this user only. Whoever can write to its folder must
// not be able to lead the log elsewhere.
func (l *file) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return errors.New("must not be a symbolic link; name the file itself")
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EISDIR):
		return errNotRegular
	case err != nil:
		return withoutPath(err)
	}
	if err := secure(f); err != nil {
		f.Close()
		return err
	}
	l.f = f
	return nil
}

var errNotRegular = errors.New("must be a regular file; choose another name")

// secure checks what was opened, and locks it.
func secure(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if err := suitable(info); err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return withoutPath(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.New("another executor writes to it; choose another file")
	}
	return nil
}

// suitable returns why a file cannot be the log.
func suitable(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errNotRegular
	}
	stat := info.Sys().(*syscall.Stat_t)
	switch {
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to user %d; choose another file", stat.Uid)
	case stat.Nlink > 1:
		return errors.New("has another name too (a hard link); choose another file")
	}
	return nil
}

// Check returns what would keep the file from being opened. It creates nothing that stays.
func Check(path string) error {
	info, err := os.Lstat(path)
	if err == nil {
		return suitable(info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return withoutPath(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".colab-relay-doctor-*")
	if err != nil {
		return withoutPath(err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// withoutPath removes the path from an error, because Open's has it.
func withoutPath(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

// append writes a line, in a new file if the old one is full, was deleted or was replaced.
func (l *file) append(line []byte) error {
	info, err := l.current()
	if err != nil {
		return err
	}
	if info.Size() > 0 && info.Size()+int64(len(line)) > l.limits.FileBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.f.Write(line)
	if n > 0 && err != nil { // a part of a line must not precede the next one
		if end, seekErr := l.f.Seek(0, io.SeekEnd); seekErr == nil {
			err = errors.Join(err, l.f.Truncate(end-int64(n)))
		}
	}
	if err != nil {
		return withoutPath(err)
	}
	return nil
}

// current makes sure that the open file is the one at the path, and describes it.
func (l *file) current() (fs.FileInfo, error) {
	if l.f != nil {
		opened, err := l.f.Stat()
		named, nameErr := os.Lstat(l.path)
		if err == nil && nameErr == nil && os.SameFile(opened, named) {
			return opened, nil
		}
		l.close()
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.f.Stat()
}

// rotate keeps the file as PATH.1, what was PATH.1 as PATH.2 and so on, and starts a new one.
func (l *file) rotate() error {
	for n := l.limits.Old; n > 0; n-- {
		if err := os.Rename(l.old(n-1), l.old(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keeping a full file as %q: %w", filepath.Base(l.old(n)), withoutLink(err))
		}
	}
	l.close()
	return l.open()
}

// old is the name of the n-th full file.
func (l *file) old(n int) string {
	if n == 0 {
		return l.path
	}
	return l.path + "." + strconv.Itoa(n)
}

func withoutLink(err error) error {
	if inner, ok := errors.AsType[*os.LinkError](err); ok {
		return inner.Err
	}
	return err
}

func (l *file) close() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}
