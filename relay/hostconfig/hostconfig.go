// Package hostconfig adds the relay to an MCP host's own configuration file, and keeps
// everything else in the file byte for byte.
//
// It must not change a file that it cannot parse, and it starts no host. Start reading at
// Hosts and Plan; json.go and toml.go edit the texts.
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

// serverName is the key of the relay's entry in a host's list of MCP servers.
const serverName = "colab-relay"

// maxFile bounds a file, in bytes. It is large because Claude Code also keeps histories
// in its file.
const maxFile = 64 << 20

// Errors that callers distinguish.
var (
	// ErrForm: this package cannot edit the file.
	ErrForm = errors.New("the file was not changed")
	// ErrNotInstalled: the host does not start a relay.
	ErrNotInstalled = errors.New("not installed")
	// ErrChanged: another program wrote the file between Plan and Write.
	ErrChanged = errors.New("another program has just written the file")
)

// Command is what a host starts.
type Command struct {
	Path string
	Args []string
}

// Change is what Write does to a file.
type Change struct {
	Path     string // with symbolic links followed
	Entry    string // the relay's entry after the change
	old, new []byte
	missing  bool // the file does not exist yet
}

// None reports that the file needs no change.
func (c Change) None() bool { return !c.missing && bytes.Equal(c.old, c.new) }

// Plan computes the change that makes the host start command. It writes nothing. If it
// returns ErrForm, ByHand says what a person can do.
func Plan(h Host, u User, command Command) (Change, error) {
	path, err := u.path(h)
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
	after, _, _ := h.entry(edited)
	return Change{Path: path, Entry: h.show(after), old: old, new: edited, missing: missing}, nil
}

// Write changes the file atomically.
func (c Change) Write() error {
	now, missing, err := read(c.Path)
	if err != nil {
		return err
	}
	if missing != c.missing || !bytes.Equal(now, c.old) {
		return fmt.Errorf("%q: %w", c.Path, ErrChanged)
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return fmt.Errorf("write %q: create its folder: %v", c.Path, err)
	}
	if err := atomic.WriteFile(c.Path, bytes.NewReader(c.new)); err != nil {
		return fmt.Errorf("write %q: %v", c.Path, err)
	}
	return nil
}

// Installed returns the program that the host starts as the relay. It returns
// ErrNotInstalled if the host's file names no program.
func Installed(h Host, u User) (program string, err error) {
	path, err := u.path(h)
	if err != nil {
		return "", err
	}
	text, missing, err := read(path)
	switch {
	case missing:
		return "", ErrNotInstalled
	case err != nil:
		return "", fmt.Errorf("unreadable: %s", path)
	}
	have, exists, err := h.entry(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("unreadable: %s", path)
	case !exists:
		return "", ErrNotInstalled
	}
	return have.Command, nil
}

func read(path string) (text []byte, missing bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read the host's config: %v", err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, false, fmt.Errorf("%q: %w: it is not a regular file, or it is larger than %d MiB", path, ErrForm, maxFile>>20)
	}
	text, err = os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("read the host's config: %v", err)
	}
	return text, false, nil
}
