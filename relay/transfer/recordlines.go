package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"colabrelay/shared/bounded"
)

// maxRecordBytes bounds a file of records: maxEntries lines of long names.
const maxRecordBytes = 64 << 20

// maxRecordLine bounds one record: a path of 4 KiB that JSON escapes, and its digest.
const maxRecordLine = 64 << 10

// openLines opens a file of records, one per line, for appending. It passes each line to
// accept, up to the first one that is incomplete or that accept refuses. The file is
// truncated before that line, so that the next record starts on a new line.
func openLines(root *os.Root, name string, accept func(line []byte) bool) (*os.File, error) {
	if info, err := root.Stat(name); err == nil && !info.Mode().IsRegular() { // reading a pipe would wait
		return nil, fmt.Errorf("opening %q: %w: remove it", absolute(root, name), bounded.ErrNotFile)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", absolute(root, name), markDiskFull(err))
	}
	valid := readLines(f, accept)
	if err := f.Truncate(valid); err != nil {
		return nil, errors.Join(fmt.Errorf("truncating %q: %w", absolute(root, name), err), f.Close())
	}
	if _, err := f.Seek(valid, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %q: %w", absolute(root, name), err), f.Close())
	}
	return f, nil
}

// readLines returns the length of the valid lines at the beginning of f.
func readLines(f io.Reader, accept func(line []byte) bool) (valid int64) {
	lines := bufio.NewReader(io.LimitReader(f, maxRecordBytes))
	for {
		text, size, err := bounded.ReadLine(lines, maxRecordLine)
		if err != nil || text == nil || !accept(text) {
			return valid
		}
		valid += size
	}
}
