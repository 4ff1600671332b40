package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxLine bounds a line of a state file or of an event log, in bytes: an event with its
// offset, or a state with the texts of an error.
const maxLine = 2 * contract.MaxEventBytes

// errDamaged means that a file has bytes that no executor wrote.
var errDamaged = errors.New("the file is damaged")

// How each line of a file begins.
const (
	stateBegins     = `{"execution_id":`
	eventBegins     = `{"offset":`
	tombstoneBegins = `{"id":`
)

// isTorn reports whether text can be the beginning of a line that a kill has torn. Lines are
// JSON objects, which have no control characters.
func isTorn(text []byte, begins string) bool {
	n := min(len(text), len(begins))
	return len(text) < maxLine && string(text[:n]) == begins[:n] && !slices.ContainsFunc(text, func(b byte) bool { return b < ' ' })
}

// cutTornLine truncates a file, whose lines begin so, after its last newline. If what follows that is not the
// beginning of a line, it stays, and the error is errDamaged. cut reports whether something was cut off.
func cutTornLine(path, begins string) (cut bool, err error) {
	f, err := bounded.OpenFile(path, os.O_RDWR)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	from := max(0, size-maxLine)
	end := make([]byte, size-from)
	if _, err := f.ReadAt(end, from); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	whole := bytes.LastIndexByte(end, '\n') + 1
	if !isTorn(end[whole:], begins) {
		return false, fmt.Errorf("%w: the end of %q is not a line", errDamaged, path)
	}
	if whole == len(end) {
		return false, nil
	}
	return true, f.Truncate(from + int64(whole))
}
