// Package hostconfig writes the relay into an MCP host's own configuration file and
// keeps everything else in it, byte by byte.
//
// It must not overwrite a file it does not understand, and starts no host. Start
// reading at Hosts and Plan; json.go and toml.go edit the texts.
package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/natefinch/atomic"
)

// serverName is the relay's entry in each host's list of MCP servers.
const serverName = "colab-relay"

// maxFile bounds what is read, in bytes. Claude Code keeps histories in its file.
const maxFile = 64 << 20

// Errors that callers tell apart.
var (
	// ErrForm is a file that is not understood; it is left as it is.
	ErrForm = errors.New("the file is left as it is")
	// ErrChanged is a file that was written by another program between Plan and Write.
	ErrChanged = errors.New("another program wrote the file meanwhile")
)

// Command is what a host is to start.
type Command struct {
	Path string
	Args []string
}

// Change is a file as it is and as it is to be.
type Change struct {
	Path     string // with symbolic links followed
	Old, New []byte
	missing  bool // there is no file yet
}

// None reports that the file holds all of it already.
func (c Change) None() bool { return !c.missing && bytes.Equal(c.Old, c.New) }

// Plan works out the change that makes host start command. Nothing is written.
// ErrForm's message says what to add by hand.
func Plan(h Host, p Place, command Command) (Change, error) {
	path, err := p.file(h)
	if err != nil {
		return Change{}, err
	}
	old, missing, err := read(path)
	if err != nil {
		return Change{}, err
	}
	edited, err := h.edit(old, command)
	if err != nil {
		return Change{}, fmt.Errorf("%q: %w: %w", path, ErrForm, err)
	}
	return Change{Path: path, Old: old, New: edited, missing: missing}, nil
}

// Write puts the change into place, all of it or nothing.
func (c Change) Write() error {
	now, missing, err := read(c.Path)
	if err != nil {
		return err
	}
	if missing != c.missing || !bytes.Equal(now, c.Old) {
		return fmt.Errorf("%q: %w", c.Path, ErrChanged)
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return fmt.Errorf("write %q: make its folder: %v", c.Path, err)
	}
	if err := atomic.WriteFile(c.Path, bytes.NewReader(c.New)); err != nil {
		return fmt.Errorf("write %q: %v", c.Path, err)
	}
	return nil
}

// Installed is the program the host starts as the relay; ok is false where its file
// names none or can't be read.
func Installed(h Host, p Place) (program string, ok bool) {
	path, err := p.file(h)
	if err != nil {
		return "", false
	}
	text, missing, err := read(path)
	if err != nil || missing {
		return "", false
	}
	return h.program(text)
}

func read(path string) (text []byte, missing bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read the host's config: %v", err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, false, fmt.Errorf("%q: %w: it is no file, or larger than %d bytes", path, ErrForm, maxFile)
	}
	text, err = os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("read the host's config: %v", err)
	}
	return text, false, nil
}
