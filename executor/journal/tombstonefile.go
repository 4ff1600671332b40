package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// tombstoneFile is one of the two files. A nil one does nothing.
type tombstoneFile struct {
	path   string
	file   *os.File
	size   int64
	count  int
	places index // by id and by request_id
}

// openTombstoneFile reads a file. A last line that a kill has torn is removed. A file with
// other damage is renamed, and a new one gets the lines that can be read; with flag
// os.O_CREATE also if none can. Without it, the error is fs.ErrNotExist then.
func openTombstoneFile(path string, flag int, log *slog.Logger) (*tombstoneFile, error) {
	f, err := readTombstoneFile(path, flag)
	if !errors.Is(err, errDamaged) && !errors.Is(err, bounded.ErrNotFile) {
		return f, err
	}
	kept, moved := keep.Aside(path)
	log.Warn("the outcomes of old executions are damaged; the file is kept under another name, and requests whose lines cannot be read would run again", "path", path, "kept", kept, "err", errors.Join(err, moved))
	if moved != nil {
		f.close()
		return nil, moved
	}
	if f == nil {
		return readTombstoneFile(path, flag)
	}
	defer f.close()
	return f.salvage()
}

// readTombstoneFile reads a file. With errDamaged, it returns what can be read.
func readTombstoneFile(path string, flag int) (*tombstoneFile, error) {
	file, err := bounded.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	f := &tombstoneFile{path: path, file: file, places: newIndex()}
	err = f.load(func(tombstone, []byte) error { return nil })
	if err != nil && !errors.Is(err, errDamaged) {
		file.Close()
		return nil, err
	}
	return f, err
}

// load reads the file, and passes each tombstone to use. It removes a torn last line, and
// returns errDamaged if there is anything else that is not a tombstone.
func (f *tombstoneFile) load(use func(s tombstone, line []byte) error) error {
	lines := bufio.NewReaderSize(io.NewSectionReader(f.file, 0, 2*maxTombstoneFile), maxTombstone)
	for damaged := 0; ; {
		line, size, err := bounded.ReadLine(lines, maxTombstone)
		var s tombstone
		switch {
		case errors.Is(err, io.EOF) && (damaged > 0 || size > maxTombstone || !isTorn(line, tombstoneBegins)):
			return fmt.Errorf("%w: it has %d lines that are no outcomes, or ends with something else", errDamaged, damaged)
		case errors.Is(err, io.EOF) && size > 0:
			return f.file.Truncate(f.size)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case json.Unmarshal(line, &s) != nil || s.ID == "" || s.RequestID == "":
			damaged++
		default:
			if err := use(s, line); err != nil {
				return err
			}
			f.addToIndex(s.ID, s.RequestID, f.size)
		}
		f.size += size
	}
}

// salvage makes the file again with the lines of a damaged one that can be read.
func (f *tombstoneFile) salvage() (*tombstoneFile, error) {
	file, err := bounded.OpenFile(f.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	fresh := &tombstoneFile{path: f.path, file: file, places: newIndex()}
	again := &tombstoneFile{file: f.file, places: newIndex()}
	if err := again.load(fresh.add); err != nil && !errors.Is(err, errDamaged) {
		fresh.close()
		return nil, err
	}
	return fresh, nil
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
	if f == nil || !gone(f.file, f.path) {
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
