package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

const stateFileName = "state.ndjson"

// stateLine is one line of a state file: a complete snapshot of an execution. The
// last line counts.
type stateLine struct {
	contract.Execution
	CodeSHA256 string `json:"code_sha256"`
	Unstored   bool   `json:"unstored,omitempty"`
}

// stateFile is the file of an execution's states. Its Record's lock guards it.
type stateFile struct {
	path    string
	file    *os.File // nil while it is not open
	ended   bool     // the execution has finished: no more lines follow
	unsaved bool     // the newest state is not in the file
}

// append writes a line. If the file or its folder was deleted, it is made again.
func (s *stateFile) append(line []byte) error {
	if s.file != nil && gone(s.file, s.path) {
		s.close()
	}
	if s.file == nil {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return err
		}
		f, err := openAppend(s.path)
		if err != nil {
			return err
		}
		s.file = f
	}
	n, err := s.file.Write(line)
	if err == nil || n == 0 {
		return err
	}
	end, seekErr := s.file.Seek(0, io.SeekEnd) // a partial line must not precede the next one
	return errors.Join(err, seekErr, s.file.Truncate(end-int64(n)))
}

func (s *stateFile) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// readState returns the last complete line of the state file in dir. With the error
// errDamaged it is the last one that can be read, or empty.
func readState(dir string) (last stateLine, err error) {
	f, err := bounded.Open(filepath.Join(dir, stateFileName))
	if err != nil {
		return last, err
	}
	defer f.Close()
	damaged := 0
	lines := bufio.NewReader(f)
	for {
		data, size, err := bounded.ReadLine(lines, maxLine)
		if err != nil && err != io.EOF {
			return last, err
		}
		if err == io.EOF { // what a torn last line says was never answered with
			if size > maxLine || !isTorn(data, stateBegins) {
				damaged++
			}
			break
		}
		if line, ok := parseState(data); ok && line.ExecutionID == filepath.Base(dir) {
			last = line
		} else {
			damaged++
		}
	}
	switch {
	case damaged > 0:
		return last, fmt.Errorf("%w: %q has %d lines that are not states of this execution", errDamaged, f.Name(), damaged)
	case last.ExecutionID == "":
		return last, fmt.Errorf("%w: %q has no complete line", errDamaged, f.Name())
	}
	return last, nil
}

// parseState reads one line.
func parseState(data []byte) (line stateLine, ok bool) {
	err := json.Unmarshal(data, &line)
	return line, err == nil && line.ExecutionID != "" && line.RequestID != ""
}
