// Package program keeps a copy of this program in the user's data folder, for MCP hosts
// to start. The program itself may be in the cache of a package runner such as uvx or
// npx, or in a folder of downloads, from which it disappears.
//
// It must not change anything outside that folder. Start reading at Plan.
package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/environ"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
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

// DataDir returns this user's folder for the data of programs, which survives the cleaning
// of caches: XDG_DATA_HOME or ~/.local/share on Linux (XDG Base Directory Specification),
// ~/Library/Application Support on macOS, %LOCALAPPDATA% on Windows. It creates nothing.
func DataDir() (string, error) {
	switch runtime.GOOS {
	case "darwin":
		return os.UserConfigDir()
	case "windows":
		return os.UserCacheDir() // %LOCALAPPDATA%, which Windows does not clean
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // the specification: ignore relative paths
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "share"), err
}

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
	content, err := os.ReadFile(c.From)
	if err != nil {
		return err
	}
	temp := c.Path + ".new"
	if err := keep.WriteFileMode(temp, content, 0o755); err != nil {
		return err
	}
	defer os.Remove(temp) // where it was not renamed
	return replace(temp, c.Path)
}

// replace renames a file to path. Windows replaces no program that runs, but renames it.
func replace(from, path string) error {
	removeAside(path)
	err := keep.Replace(from, path)
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
	textA, errA := os.ReadFile(a)
	textB, errB := os.ReadFile(b)
	return bytes.Equal(textA, textB), errors.Join(errA, errB)
}

// Bounds of the question for a program's version. A host may be set up to start any
// program.
const (
	versionWait = 5 * time.Second
	maxVersion  = 4 << 10 // bytes of output
)

var versionPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)

// Version returns the version that a relay prints. It runs the program with the argument
// "version" and without input and secrets, for at most five seconds, and accepts at most 4 KiB.
func Version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	out := &bounded.Buffer{Max: maxVersion}
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.Env = environ.Only(os.Environ(), environ.Basic)
	cmd.Stdout = out
	cmd.WaitDelay = time.Second // a child may hold the output open
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ask %q for its version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out.Bytes()), "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !versionPattern().MatchString(words[len(words)-1]) {
		return "", fmt.Errorf("ask %q for its version: it prints none", path)
	}
	return words[len(words)-1], nil
}

// older reports whether a is an older release than b. It is false for other builds.
func older(a, b string) bool {
	x, y := release(a), release(b)
	return x != nil && y != nil && slices.Compare(x, y) < 0
}

// releasePattern is a version such as v1.2.3, v1.2.3-rc.1 or, for a build after a release,
// v1.2.4-dev.5.gabcdef or v1.2.3-rc.1.dev.5.gabcdef.
var releasePattern = lazy.Regexp(`^v?(\d+)\.(\d+)\.(\d+)(?:-(dev|alpha|beta|rc)\.?(\d+)(?:\.dev\.(\d+))?)?`)

// release returns the numbers of a release or of a build after one, which have its order, or
// nil. A pre-release comes before its release. A build before all releases has no order.
func release(version string) (numbers []int) {
	match := releasePattern().FindStringSubmatch(version)
	if match == nil || strings.HasPrefix(version, "v0.0.0-dev") {
		return nil
	}
	stage := map[string]string{"dev": "0", "alpha": "1", "beta": "2", "rc": "3", "": "4"}[match[4]]
	for _, digits := range []string{match[1], match[2], match[3], stage, cmp.Or(match[5], "0"), cmp.Or(match[6], "0")} {
		n, _ := strconv.Atoi(digits) // the largest int if there are too many
		numbers = append(numbers, n)
	}
	return numbers
}
