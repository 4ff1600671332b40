package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
)

// errNotALog: the end of the file is nothing that an executor wrote.
var errNotALog = errors.New("the file does not end like an audit log")

// lineStart begins each line.
var lineStart = []byte(`{"time":"`)

// ending is how the executor before left the log.
type ending struct {
	torn    int64 // bytes of a torn last line, which was removed
	unclean bool  // it did not record its end
}

// cause explains what is missing.
func (e ending) cause() string {
	if !e.unclean {
		return ""
	}
	return "the executor before recorded no end: its unwritten records are missing, and up to half of the omitted ones were not counted"
}

// repair removes what follows the last complete line: a part of a line that a crash left. It
// changes nothing that is not a log's end.
func repair(f *os.File) (was ending, err error) {
	info, err := f.Stat()
	if err != nil {
		return was, withoutPath(err)
	}
	size := info.Size()
	tail := make([]byte, min(size, 2*maxLine))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return was, withoutPath(err)
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	if !begins(tail[end:]) || end > 0 && !begins(lastLine(tail[:end])) {
		return was, errNotALog
	}
	if was.torn = int64(len(tail) - end); was.torn > 0 {
		err = f.Truncate(size - was.torn)
	}
	was.unclean = was.torn > 0 || end > 0 && !isEnd(lastLine(tail[:end]))
	return was, err
}

// isEnd reports whether a line records the end of an executor.
func isEnd(line []byte) bool {
	var r struct {
		Event event `json:"event"`
	}
	return json.Unmarshal(line, &r) == nil && r.Event == eventStopped
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
