package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"colabrelay/shared/filename"
)

// SaveText stores the whole text of a cell that is too long for a notebook: it writes text at the
// offset in the cell's file, which ends there, and returns the name by which the notebook mentions
// the file. No text at offset 0 deletes it.
type SaveText func(key string, offset int64, text []byte) (name string, err error)

// spill is the file that has the whole text of a cell.
type spill struct {
	save    SaveText
	key     string
	most    int64
	active  bool
	full    bool
	name    string
	err     error
	size    int64 // of what is in the file for good
	pending []byte
}

// spillBuffer is how much text a spill collects before it writes.
const spillBuffer = 256 << 10

func (s *spill) write(text []byte) {
	if !s.active || s.full || s.err != nil || s.save == nil {
		return
	}
	if s.size+int64(len(s.pending)+len(text)) > s.most {
		s.full = true
		return
	}
	if s.pending = append(s.pending, text...); len(s.pending) >= spillBuffer {
		s.flush(nil)
	}
}

// flush writes what is pending, followed by a line that may still change.
func (s *spill) flush(line []byte) {
	if !s.active || s.save == nil || s.err != nil || len(s.pending)+len(line) == 0 {
		return
	}
	if s.full || s.size+int64(len(s.pending)+len(line)) > s.most {
		line = nil
	}
	s.name, s.err = s.save(s.key, s.size, append(s.pending, line...))
	s.size += int64(len(s.pending))
	s.pending = s.pending[:0]
}

// discard deletes the file.
func (s *spill) discard() {
	if s.name != "" {
		_, _ = s.save(s.key, 0, nil)
	}
	*s = spill{save: s.save, key: s.key, most: s.most}
}

// SaveIn returns a SaveText whose files are in dir, which is made when it is needed. A file is
// named after stem, such as the notebook's name, and the cell's key; a later text of the same cell
// replaces it. The notebook mentions it as inside the folder mention, such as ~/saved: a notebook
// is passed on, and should not name its author.
func SaveIn(dir, mention, stem string) SaveText {
	return func(key string, offset int64, text []byte) (string, error) {
		name := filename.Clean(stem, true) + "-" + filename.Unique(key) + ".txt"
		err := SaveAt(dir, name, offset, text)
		if about, ok := errors.AsType[*fs.PathError](err); ok {
			err = about.Err // the path is long, and names the author
		}
		return path.Join(filepath.ToSlash(mention), name), err
	}
}

// SaveAt makes text the end of a file, of which the first offset bytes stay. A link there leads
// nowhere outside dir.
func SaveAt(dir, name string, offset int64, text []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if offset == 0 {
		if err := root.Remove(name); len(text) == 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < offset {
		return errors.Join(err, fmt.Errorf("%q is shorter than recorded", name))
	}
	if _, err = file.WriteAt(text, offset); err != nil {
		return err
	}
	return errors.Join(file.Truncate(offset+int64(len(text))), file.Close())
}
