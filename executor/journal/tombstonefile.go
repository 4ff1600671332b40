package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// tombstoneFile is one of the two files. A nil one does nothing.
type tombstoneFile struct {
	path   string
	file   *os.File
	size   int64
	count  int
	places index // by id and by request_id
}

// openTombstoneFile reads a file. A last line that a kill has torn is removed; other
// lines that can't be read are skipped.
func openTombstoneFile(path string, flag int) (*tombstoneFile, error) {
	file, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	f := &tombstoneFile{path: path, file: file, places: newIndex()}
	if err := f.load(); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

func (f *tombstoneFile) load() error {
	if err := cutTornLine(f.path); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(f.file, maxTombstone)
	for {
		line, err := lines.ReadSlice('\n')
		position := f.size
		f.size += int64(len(line))
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return err
		}
		var s struct {
			ID        string `json:"id"`
			RequestID string `json:"r"`
		}
		if json.Unmarshal(line, &s) == nil {
			f.addToIndex(s.ID, s.RequestID, position)
		}
	}
}

func (f *tombstoneFile) addToIndex(id, requestID string, position int64) {
	f.count++
	f.places.put(id, position)
	f.places.put(requestID, position)
}

// add appends a tombstone's line. A line written in part is removed again.
func (f *tombstoneFile) add(s tombstone, line []byte) error {
	if n, err := f.file.WriteAt(line, f.size); err != nil {
		if n > 0 {
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return err
	}
	f.addToIndex(s.ID, s.RequestID, f.size)
	f.size += int64(len(line))
	return nil
}

func (f *tombstoneFile) read(position int64) (tombstone, error) {
	var s tombstone
	section := io.NewSectionReader(f.file, position, maxTombstone)
	return s, json.NewDecoder(section).Decode(&s)
}

// restore writes a deleted file again: its content can still be read while it is open.
func (f *tombstoneFile) restore() (err error) {
	if f == nil || !deleted(f.file) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	f.file, err = recreate(f.path, f.file, f.size, os.O_TRUNC)
	return err
}

func (f *tombstoneFile) close() {
	if f != nil {
		f.file.Close()
	}
}
