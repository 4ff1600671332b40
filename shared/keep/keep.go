// Package keep stores small files that outlive a program and that several programs use at the
// same time. A reader sees the old content or the new one, and only this user may read it. What
// is damaged is kept under another name, so that a person can still look at it. It must not know
// what the files are for. Start reading at File.
package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/natefinch/atomic"
)

// WriteFile replaces the file at path in one step, and creates its folder if it does not exist.
// Only this user may read it. After an error the old file is as it was.
func WriteFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no longer exists after the rename
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return atomic.ReplaceFile(f.Name(), path)
}

// WriteJSON is WriteFile for a value, as indented JSON.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = WriteFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

// Aside renames a damaged file, or whatever else has its name, and returns its new path: the
// old one with ".damaged-" and the time, in UTC and to the nanosecond.
func Aside(path string) (kept string, err error) {
	kept = path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, kept); err != nil {
		return "", fmt.Errorf("rename the damaged file: %w", err)
	}
	return kept, nil
}
