// Package program keeps a copy of this program in the user's data folder, for MCP hosts
// to start. The program itself may be in the cache of a package runner such as uvx or
// npx, or in a folder of downloads, from which it disappears.
//
// It must not change anything outside that folder. Start reading at Plan.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/natefinch/atomic"
)

// asideSuffix ends the name of a replaced program that Windows still runs.
const asideSuffix = ".old"

// Copy is the copy of this program, or what Write makes of it.
type Copy struct {
	Path   string // of the copy
	Action Action
	From   string // this program
	Before string // the version of the copy that is there, "" for none or an unknown one
}

// Action is what Write does.
type Action string

// Actions.
const (
	Keep    Action = "keep"    // the copy is this program
	Newer   Action = "newer"   // the copy is a newer release, and stays
	Create  Action = "create"  // there is no copy
	Replace Action = "replace" // the copy is an older or another build
)

// Folder is the folder of the copy in a data folder.
func Folder(data string) string { return filepath.Join(data, "colab-relay", "bin") }

// PathIn is where the copy is in a data folder.
func PathIn(data, goos string) string {
	name := "colab-relay"
	if goos == "windows" {
		name += ".exe"
	}
	return filepath.Join(Folder(data), name)
}

// Plan compares the program at from, whose version is given, with the copy at path. It
// runs the copy to learn its version, and changes nothing. A release never replaces a
// newer release.
func Plan(ctx context.Context, from, version, path string) (Copy, error) {
	c := Copy{Path: path, From: from, Action: Create}
	same, err := identical(from, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("compare this program with its copy: %v", err)
	case same:
		c.Action, c.Before = Keep, version
		return c, nil
	}
	c.Action = Replace
	if before, err := Version(ctx, path); err == nil {
		c.Before = before
		if older(version, before) {
			c.Action = Newer
		}
	}
	return c, nil
}

// Write makes the copy, if it must be made.
func (c Copy) Write() error {
	if c.Action == Keep || c.Action == Newer {
		return nil
	}
	if err := c.write(); err != nil {
		return fmt.Errorf("copy this program to %q: %v", c.Path, err)
	}
	return nil
}

func (c Copy) write() error {
	from, err := os.Open(c.From)
	if err != nil {
		return err
	}
	defer from.Close()
	dir := filepath.Dir(c.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "."+filepath.Base(c.Path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // where it was not renamed
	_, err = io.Copy(temp, from)
	err = errors.Join(err, temp.Chmod(0o755), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return replace(temp.Name(), c.Path)
}

// replace renames a file to path. Windows replaces no program that runs, but renames it.
func replace(from, path string) error {
	removeAside(path)
	err := atomic.ReplaceFile(from, path)
	if err == nil {
		return nil
	}
	aside := fmt.Sprintf("%s.%d%s", path, time.Now().UnixNano(), asideSuffix)
	if os.Rename(path, aside) != nil {
		return err
	}
	if err := os.Rename(from, path); err != nil {
		return errors.Join(err, os.Rename(aside, path))
	}
	return nil
}

// removeAside deletes programs that earlier calls renamed, unless they still run.
func removeAside(path string) {
	old, _ := filepath.Glob(path + ".*" + asideSuffix)
	for _, name := range old {
		os.Remove(name)
	}
}

// Remove deletes the copy and its folders, if they are empty then. It returns false if
// there is no copy.
func Remove(path string) (bool, error) {
	removeAside(path)
	err := os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete %q yourself when no program runs it any more: %w", path, err)
	}
	if os.Remove(filepath.Dir(path)) == nil {
		os.Remove(filepath.Dir(filepath.Dir(path)))
	}
	return true, nil
}

// identical compares two files by content.
func identical(a, b string) (bool, error) {
	infoA, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	infoB, err := os.Stat(b)
	if err != nil || os.SameFile(infoA, infoB) {
		return err == nil, err
	}
	if infoA.Size() != infoB.Size() {
		return false, nil
	}
	textA, errA := os.ReadFile(a)
	textB, errB := os.ReadFile(b)
	return bytes.Equal(textA, textB), errors.Join(errA, errB)
}
