// Package aside keeps damaged files under another name, so that a program can make a new file
// and a person can still look at the old one. It must not delete or replace anything. Start
// reading at Move.
package aside

import (
	"fmt"
	"os"
	"time"
)

// Move renames a damaged file, or whatever else has its name, and returns its new path: the
// old one with ".damaged-" and the time, in UTC and to the nanosecond.
func Move(path string) (kept string, err error) {
	kept = path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, kept); err != nil {
		return "", fmt.Errorf("rename the damaged file: %w", err)
	}
	return kept, nil
}
