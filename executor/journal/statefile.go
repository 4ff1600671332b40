package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"colabrelay/shared/contract"
)

const stateFileName = "state.ndjson"

// stateLine is one line of a state file: a complete snapshot of an execution. The
// last line counts.
type stateLine struct {
	contract.Execution
	CodeSHA256     string `json:"code_sha256"`
	Unstored       bool   `json:"unstored,omitempty"`
	AfterRequestID string `json:"after_request_id,omitempty"`
	AfterAny       bool   `json:"after_any,omitempty"`
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
	if s.file != nil && deleted(s.file) {
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

// readState returns the last complete line of the state file in dir.
func readState(dir string) (stateLine, error) {
	f, err := os.Open(filepath.Join(dir, stateFileName))
	if err != nil {
		return stateLine{}, err
	}
	defer f.Close()
	var last stateLine
	lines := bufio.NewReader(f)
	for {
		data, err := lines.ReadBytes('\n')
		if err != nil { // what a torn last line says was never answered with
			break
		}
		var line stateLine
		if json.Unmarshal(bytes.TrimSpace(data), &line) == nil {
			last = line
		}
	}
	if last.ExecutionID == "" || last.RequestID == "" {
		return stateLine{}, fmt.Errorf("no complete line in %q", f.Name())
	}
	return last, nil
}
