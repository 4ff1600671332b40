package uploads

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/executor/files"
)

// leftoversFile, in the folder of uploads, names the parts of the batch being worked on.
const leftoversFile = "batch.ndjson"

// maxLeftovers bounds it in bytes: a line for each folder of a batch, of 4 KiB paths.
const maxLeftovers = 8 << 20

// leftovers are the places where a batch may leave its part when the executor is
// killed. Without a note of them such hidden files would stay in the user's folders.
type leftovers struct {
	path string
	file *os.File
}

// leftover is one place. Folder is bytes, as JSON can't carry every name.
type leftover struct {
	Folder []byte `json:"folder"` // its real path
	Part   string `json:"part"`
}

// newBatchPartName is a name for a part of a batch, which no other part has.
func newBatchPartName() string { return "." + strings.ToLower(rand.Text()) + files.PartSuffix }

// add notes a place. One that can't be noted, as on a full disk, costs a hidden file
// after a kill and nothing else.
func (l *leftovers) add(folder, part string) {
	if l.file == nil {
		_ = os.MkdirAll(filepath.Dir(l.path), 0o700)
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return
		}
		l.file = f
	}
	if line, err := json.Marshal(leftover{[]byte(folder), part}); err == nil {
		_, _ = l.file.Write(append(line, '\n'))
	}
}

// clear forgets the places: no part is left in them.
func (l *leftovers) clear() {
	if l.file != nil {
		l.file.Close()
		os.Remove(l.path)
	}
}

// removeLeftovers removes what a batch left whose executor was killed. A folder that
// can't be entered now keeps it: nothing else may be removed in its place.
func removeLeftovers(roots *files.Roots, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, maxLeftovers))
	for {
		text, err := lines.ReadBytes('\n')
		var one leftover
		if err != nil || json.Unmarshal(bytes.TrimSpace(text), &one) != nil {
			return os.Remove(path) // the end, or a line that the kill tore
		}
		one.remove(roots)
	}
}

func (l leftover) remove(roots *files.Roots) {
	if !files.IsPart(l.Part) || strings.Contains(l.Part, "/") {
		return
	}
	t, err := roots.TargetIn(string(l.Folder), l.Part)
	if err != nil {
		return
	}
	dir, err := t.OpenFolder()
	if err != nil {
		return
	}
	defer dir.Close()
	_ = dir.Remove(l.Part)
}
