// Package checkpoint keeps small JSON files of progress on the laptop: the
// result of a named run, where a chunked run stands.
//
// A file is either the old one or the new one, whole, also after a crash: it is
// written beside its place, synced and renamed. The package knows nothing of
// MCP, HTTP or executions. Start reading at Save.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/natefinch/atomic"

	"colabrelay/shared/filename"
)

// MaxBytes bounds a checkpoint's file, read or written.
const MaxBytes = 64 << 20

// Errors of Save and Load.
var (
	ErrNotFound = errors.New("no such checkpoint")
	ErrCorrupt  = errors.New("checkpoint is not readable")
	ErrTooLarge = errors.New("checkpoint is over 64 MiB")
)

// Entry is what a file holds.
type Entry struct {
	Operation string          `json:"operation"` // the name it was saved under, as given
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// Save writes v as the checkpoint name in dir, which is made when missing, and
// gives the file's path. The file is readable by its owner only.
func Save(dir, name string, v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding checkpoint %q: %w", name, err)
	}
	body, err := encode(Entry{Operation: name, Timestamp: time.Now().UTC(), Data: data})
	if err != nil {
		return "", fmt.Errorf("encoding checkpoint %q: %w", name, err)
	}
	if len(body) > MaxBytes {
		return "", fmt.Errorf("saving checkpoint %q: %w", name, ErrTooLarge)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the checkpoint folder: %w", err)
	}
	path := Path(dir, name)
	if err := atomic.WriteFile(path, bytes.NewReader(body)); err != nil {
		return "", fmt.Errorf("saving checkpoint %q: %w", name, err)
	}
	// A replaced file keeps the mode of the old one, which may have been wider.
	if err := os.Chmod(path, 0o600); err != nil {
		return "", fmt.Errorf("saving checkpoint %q: %w", name, err)
	}
	return path, nil
}

// maxIndented is the data up to which a file is laid out for people; beyond it the
// white space would be most of the file.
const maxIndented = 256 << 10

func encode(e Entry) ([]byte, error) {
	if len(e.Data) > maxIndented {
		return json.Marshal(e)
	}
	return json.MarshalIndent(e, "", "  ")
}

// Load reads the checkpoint name from dir and, when v is not nil, decodes its
// data into v. It gives ErrNotFound, or ErrCorrupt for a file that is no
// checkpoint of that name.
func Load(dir, name string, v any) (Entry, error) {
	body, err := readBounded(Path(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("reading checkpoint %q: %w", name, err)
	}
	var e Entry
	if err := json.Unmarshal(body, &e); err != nil || e.Operation != name {
		return Entry{}, fmt.Errorf("%q: %w", name, ErrCorrupt)
	}
	if v == nil {
		return e, nil
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return e, fmt.Errorf("%q: %w", name, ErrCorrupt)
	}
	return e, nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxBytes {
		return nil, ErrTooLarge
	}
	return os.ReadFile(path)
}

// maxNames bounds what Names looks at.
const maxNames = 1000

// Names lists the checkpoints in dir, sorted, at most 1,000. Of a file only the
// beginning is read, where its name stands; one that is no checkpoint is left out.
func Names(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the checkpoint folder: %w", err)
	}
	names := []string{}
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" || !f.Type().IsRegular() || len(names) == maxNames {
			continue
		}
		if name, ok := operation(filepath.Join(dir, f.Name())); ok && Path(dir, name) == filepath.Join(dir, f.Name()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// operation is the name in a file, its first field.
func operation(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	decoder := json.NewDecoder(io.LimitReader(f, 16<<10))
	for _, want := range []json.Token{json.Delim('{'), "operation"} {
		if got, err := decoder.Token(); err != nil || got != want {
			return "", false
		}
	}
	name, err := decoder.Token()
	text, ok := name.(string)
	return text, ok && err == nil
}

// Path returns the file of the checkpoint name in dir. Two names never share a file, also
// where file names ignore case.
func Path(dir, name string) string { return filepath.Join(dir, filename.Unique(name)+".json") }
