// Package checkpoint keeps small JSON files on the laptop: the result of a named run, or
// the progress of a chunked run.
//
// After a crash a file is either the old or the new one, never a mixture, because it is
// written under another name, synced and renamed. The package knows nothing of MCP, HTTP
// or executions. Start reading at Save.
package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/filename"
	"colabrelay/shared/keep"
)

// MaxBytes bounds the file of a checkpoint.
const MaxBytes = 64 << 20

// Errors of Save and Load.
var (
	ErrNotFound = errors.New("no such checkpoint")
	ErrCorrupt  = errors.New("checkpoint is damaged")
	ErrTooLarge = errors.New("checkpoint is larger than 64 MiB")
)

// Entry is the content of a file.
type Entry struct {
	Operation string          `json:"operation"` // the name it was saved under, as given
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// Kind is the field "kind" of the data, by which a package knows its own; empty if there is none.
func (e Entry) Kind() string {
	var head struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(e.Data, &head) != nil {
		return ""
	}
	return head.Kind
}

// Save writes v as the checkpoint name in dir, which is created when missing, and returns
// the file's path. Only the owner can read the file.
func Save(dir, name string, v any) (string, error) {
	body, err := encode(name, v)
	if err != nil {
		return "", fmt.Errorf("encoding checkpoint %q: %w", name, err)
	}
	if len(body) > MaxBytes {
		return "", fmt.Errorf("saving checkpoint %q: %w", name, ErrTooLarge)
	}
	path := Path(dir, name)
	if err := keep.WriteFile(path, body); err != nil {
		return "", fmt.Errorf("saving checkpoint %q: %w", name, err)
	}
	return path, nil
}

// encode returns the content of a file. Characters of HTML stay as they are: escaped, a value could
// take six times as much.
func encode(name string, v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(struct {
		Operation string    `json:"operation"`
		Timestamp time.Time `json:"timestamp"`
		Data      any       `json:"data"`
	}{name, time.Now().UTC(), v})
	return text.Bytes(), err
}

// Load reads the checkpoint name from dir and, if v is not nil, decodes its data into v. The
// error is ErrNotFound, or ErrCorrupt if the file is not a checkpoint of that name.
func Load(dir, name string, v any) (Entry, error) {
	body, err := bounded.ReadFile(Path(dir, name), MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Entry{}, fmt.Errorf("%q: %w", name, ErrNotFound)
	case errors.Is(err, bounded.ErrTooLong):
		return Entry{}, fmt.Errorf("reading checkpoint %q: %w", name, ErrTooLarge)
	case errors.Is(err, bounded.ErrNotFile):
		return Entry{}, fmt.Errorf("%q: %w: %w", name, ErrCorrupt, err)
	case err != nil:
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

// maxNames bounds the result of Names.
const maxNames = 1000

// Names returns the names of the checkpoints in dir, sorted, at most 1,000. It reads only
// the beginning of each file, which contains the name, and skips files that are not
// checkpoints.
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

// operation returns the name in a file, which is its first field.
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

// ErrBusy means that another call or relay has locked the checkpoint.
var ErrBusy = errors.New("another call or relay is using this checkpoint name")

// lockWait is how long to wait for a lock that another caller has. A killed relay holds its
// locks until the system has ended all its threads, which takes a moment on a busy computer:
// without the wait, the same call in a new relay was refused.
const lockWait = 2 * time.Second

// Lock reserves the checkpoint name in dir for the caller until it calls unlock, or its
// process ends. If another caller has the lock for longer than lockWait, the error is ErrBusy.
// A caller that reads a checkpoint and writes it back must hold the lock throughout.
func Lock(dir, name string) (unlock func(), err error) {
	if unlock, err = LockFile(Path(dir, name) + ".lock"); err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return unlock, nil
}

// LockFile is Lock for a lock file, which it makes if it does not exist.
func LockFile(path string) (unlock func(), err error) {
	waiting, done := context.WithTimeout(context.Background(), lockWait)
	defer done()
	unlock, err = keep.Lock(waiting, path)
	if errors.Is(err, keep.ErrLocked) {
		return nil, ErrBusy
	}
	return unlock, err
}
