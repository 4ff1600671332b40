package page

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"colabrelay/shared/bounded"
)

const (
	// maxControlFile bounds a control file, in bytes; a larger one is ignored.
	maxControlFile = 4 << 10
	// maxControlFiles bounds the control files that are read; others are ignored.
	maxControlFiles = 200
)

// controlFile is the content of <Dir>/<pid>.json.
type controlFile struct {
	PID     int       `json:"pid"`
	Port    int       `json:"port"`
	Secret  string    `json:"secret"`
	Started time.Time `json:"started"`
}

// announce writes the control file.
func (s *server) announce(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of control files: %w", err)
	}
	pid := os.Getpid()
	content, err := json.Marshal(controlFile{PID: pid, Port: s.port, Secret: s.control.secret, Started: time.Now().UTC()})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, strconv.Itoa(pid)+".json")
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("writing a control file: %w", err)
	}
	s.control.path = path
	return nil
}

// replaceFile writes a file that only this user can read. Readers see all of it or nothing.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// remove deletes the control file.
func (c *control) remove() {
	if c.path != "" {
		_ = os.Remove(c.path) // a file that stays is removed by ControlAll
	}
}

func newControlSecret() string { return rand.Text() }

var controlName = regexp.MustCompile(`^[1-9][0-9]{0,9}\.json$`)

// readControlFiles returns the control files in dir, by their paths.
func readControlFiles(dir string) (map[string]controlFile, error) {
	folder, err := os.Open(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for control files: %w", err)
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxControlFiles)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("looking for control files: %w", err)
	}
	files := map[string]controlFile{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !controlName.MatchString(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if file, ok := readControlFile(path); ok {
			files[path] = file
		}
	}
	return files, nil
}

func readControlFile(path string) (file controlFile, ok bool) {
	content, err := bounded.ReadFile(path, maxControlFile)
	if err != nil || json.Unmarshal(content, &file) != nil {
		return file, false
	}
	return file, file.PID > 0 && file.Port > 0 && file.Port < 1<<16 && file.Secret != ""
}
