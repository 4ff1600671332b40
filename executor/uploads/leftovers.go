package uploads

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/executor/files"
	"colabrelay/shared/bounded"
)

// leftoversFile, in the folder of uploads, lists the part files of the batch in work.
const leftoversFile = "batch.ndjson"

// maxLeftovers is how many bytes of it are read: a line for each folder of a batch, with
// paths of up to 4 KiB.
const maxLeftovers = 8 << 20

// leftovers records where a batch may leave its part file if the executor is killed.
// Otherwise such hidden files would stay in the user's folders.
type leftovers struct {
	path string
	file *os.File
}

// leftoverBegins is how each line begins.
const leftoverBegins = `{"folder":`

// leftover is one part file. Folder is bytes because JSON can't represent every name.
type leftover struct {
	Folder []byte `json:"folder"` // its real path
	Part   string `json:"part"`
}

// newBatchPartName is a unique name for the part files of a batch.
func newBatchPartName() string { return "." + strings.ToLower(rand.Text()) + files.PartSuffix }

// add records a part file. If that fails, as on a full disk, a hidden file may stay after a
// kill, which does no other harm.
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

// clear deletes the records, because no part file is left.
func (l *leftovers) clear() {
	if l.file != nil {
		l.file.Close()
		os.Remove(l.path)
	}
}

// removeLeftovers deletes the part files of a batch whose executor was killed. If a folder
// can't be opened now, its part file is kept. An error means that the record is damaged.
func removeLeftovers(roots *files.Roots, path string) error {
	f, err := bounded.Open(path)
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
		beginning := min(len(text), len(leftoverBegins))
		switch {
		case err == io.EOF && string(text[:beginning]) == leftoverBegins[:beginning]:
			return os.Remove(path) // the end of the file, or a line that the kill left incomplete
		case err != nil, json.Unmarshal(text, &one) != nil, one.Part == "":
			return fmt.Errorf("%q is damaged: part files named .*%s may stay in your folders (%v)", path, files.PartSuffix, err)
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
