package output

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"colabrelay/shared/filename"
)

// SaveIn returns a SaveText whose files are in dir, which is made when it is needed. A file is
// named after stem, such as the notebook's name, and the cell's key; a later text of the same cell
// replaces it. The notebook mentions it as inside the folder mention, such as ~/saved: a notebook
// is passed on, and should not name its author.
func SaveIn(dir, mention, stem string) SaveText {
	return func(key string, offset int64, text []byte) (string, error) {
		name := filename.Clean(stem, true) + "-" + filename.Unique(key) + ".txt"
		err := saveAt(dir, name, offset, text)
		if about, ok := errors.AsType[*fs.PathError](err); ok {
			err = about.Err // the path is long, and names the author
		}
		return path.Join(filepath.ToSlash(mention), name), err
	}
}

// saveAt makes text the end of a file. A link there leads nowhere outside dir.
func saveAt(dir, name string, offset int64, text []byte) error {
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
	_, err = file.WriteAt(text, offset)
	return errors.Join(err, file.Truncate(offset+int64(len(text))), file.Close())
}
