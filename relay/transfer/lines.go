package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxMemo bounds a file of what is done, in bytes: maxEntries lines of long names.
const maxRecordBytes = 64 << 20

// openLines opens a file that lines are added to, and gives the lines that are there to
// take, up to the first that is torn or that take refuses. What follows is cut off, so
// that the next line stands alone.
func openLines(root *os.Root, name string, take func(line []byte) bool) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", absolute(root, name), markDiskFull(err))
	}
	whole := readLines(f, take)
	if err := f.Truncate(whole); err != nil {
		return nil, errors.Join(fmt.Errorf("cutting %q: %w", absolute(root, name), err), f.Close())
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %q: %w", absolute(root, name), err), f.Close())
	}
	return f, nil
}

// readLines says where the first line that is not whole begins.
func readLines(f io.Reader, take func(line []byte) bool) (whole int64) {
	lines := bufio.NewReader(io.LimitReader(f, maxRecordBytes))
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil || !take(text) {
			return whole
		}
		whole += int64(len(text))
	}
}
