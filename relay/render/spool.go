package render

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/filename"
)

const (
	// spoolMemory is how much text a spool keeps in memory before it opens a file.
	spoolMemory = 64 << 10
	// maxSpool bounds the file, including the text of earlier calls. An executor keeps no
	// longer log, and an execution that never ends would fill the laptop's disk.
	maxSpool = 256 << 20
)

// spool keeps a text of any length until it is known whether it must be saved: in memory
// while it is short, then in a file. It keeps its first error and stops writing then,
// because a full disk on the laptop must not fail the execution.
type spool struct {
	dir, name string // its destination; dir "" saves nothing
	buf       []byte
	file      *os.File
	limit     int64 // bytes; the rest is dropped
	bytes     int64
	cut       int64 // of bytes, those beyond the limit
	err       error
}

func (s *spool) write(text string) {
	s.bytes += int64(len(text))
	if s.dir == "" || s.err != nil {
		return
	}
	if s.bytes > s.limit {
		s.cut += int64(len(text))
		return
	}
	s.buf = append(s.buf, text...)
	if len(s.buf) >= spoolMemory {
		s.flush()
	}
}

func (s *spool) flush() {
	s.err = usual.room(s.dir, int64(len(s.buf)))
	if s.err == nil && s.file == nil {
		s.file, s.err = createIn(s.dir, s.name)
	}
	if s.err == nil {
		_, s.err = s.file.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// keep saves the text at path.
func (s *spool) keep(path string) error {
	s.flush()
	if s.err != nil {
		s.discard()
		return s.err
	}
	file := s.file
	s.file = nil
	_, err := commit(file, path)
	return err
}

// copyTo writes the text to w.
func (s *spool) copyTo(w io.Writer) (int64, error) {
	if s.file == nil {
		n, err := w.Write(s.buf)
		return int64(n), err
	}
	if s.flush(); s.err != nil {
		return 0, s.err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, s.file)
}

func (s *spool) discard() {
	if s.file != nil {
		discard(s.file)
		os.Remove(s.dir) // intended to fail if the folder has other files
		s.file = nil
	}
}

var errNoFolder = errors.New("no folder to save in")

// abandonedAfter is when nobody writes to a temporary file any more.
const abandonedAfter = 24 * time.Hour

// removeAbandoned deletes the temporary files in dir that killed relays have left.
func removeAbandoned(dir string) {
	found, _ := filepath.Glob(filepath.Join(dir, ".*"+temporary))
	for _, path := range found {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > abandonedAfter {
			os.Remove(path)
		}
	}
}

// Executions is the folder of saved output below the one for saved files.
const Executions = "executions"

// Folder returns the folder for the output of an execution below the one for saved output. It
// is named by instance and id, because an id is unique on its instance only.
func Folder(saveDir, instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return filepath.Join(saveDir, Executions, fmt.Sprintf("%s-%.6x", filename.ID(id), sum))
}

// temporary is the end of the names of temporary files.
const temporary = ".part"

// createIn opens a temporary file in dir, which is created when missing.
func createIn(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, errNoFolder
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, "."+name+".*"+temporary)
}

// commit closes a temporary file and renames it to path.
func commit(file *os.File, path string) (string, error) {
	err := file.Close()
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return path, nil
}

func discard(file *os.File) {
	file.Close()
	os.Remove(file.Name())
}

// SaveNew is SaveFile that replaces nothing: if dir/name has other content, the new file has a
// digest in its name.
func SaveNew(dir, name string, fill func(io.Writer) error) (string, error) {
	file, err := createIn(dir, name)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := fill(io.MultiWriter(file, sum)); err != nil {
		discard(file)
		return "", err
	}
	path := filepath.Join(dir, name)
	if before, err := digest(path); err == nil && before != [sha256.Size]byte(sum.Sum(nil)) {
		kind := filepath.Ext(name)
		path = filepath.Join(dir, fmt.Sprintf("%s-%.8x%s", strings.TrimSuffix(name, kind), sum.Sum(nil), kind))
	}
	return commit(file, path)
}

// digest returns the SHA-256 of a file.
func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := bounded.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return [sha256.Size]byte(h.Sum(nil)), err
}

// SaveFile creates dir/name with what fill writes, completely or not at all.
func SaveFile(dir, name string, fill func(io.Writer) error) (string, error) {
	file, err := createIn(dir, name)
	if err != nil {
		return "", err
	}
	if err := fill(file); err != nil {
		discard(file)
		return "", err
	}
	return commit(file, filepath.Join(dir, name))
}
