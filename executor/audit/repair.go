package audit

import (
	"bytes"
	"errors"
	"os"
)

// errNotALog: the end of the file is nothing that an executor wrote.
var errNotALog = errors.New("the file does not end like an audit log")

// lineStart begins each line.
var lineStart = []byte(`{"time":"`)

// cutTornLine removes what follows the last complete line: a part of a line that a crash
// left. It returns how long that was. It changes nothing that is not a log's end.
func cutTornLine(f *os.File) (torn int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, withoutPath(err)
	}
	size := info.Size()
	tail := make([]byte, min(size, 2*maxLine))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return 0, withoutPath(err)
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	if !begins(tail[end:]) || end > 0 && !begins(lastLine(tail[:end])) {
		return 0, errNotALog
	}
	if torn = int64(len(tail) - end); torn > 0 {
		err = f.Truncate(size - torn)
	}
	return torn, err
}

// lastLine returns the last line of text, which ends with a newline.
func lastLine(text []byte) []byte {
	return text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
}

// begins reports whether text may be the beginning of a line of the log.
func begins(text []byte) bool {
	n := min(len(text), len(lineStart))
	return len(text) <= maxLine && bytes.Equal(text[:n], lineStart[:n])
}
