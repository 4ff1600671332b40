package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/relay/toolsets"
)

// Bounds of the look for a notebook at the relay's start. A folder with more entries, or on
// a disk that does not answer, counts as one without notebooks.
const (
	lookTime    = 30 * time.Millisecond
	lookEntries = 2_000 // in all folders together
	lookDepth   = 2     // of folders below the first one
)

// Toolsets returns the toolsets that a relay serves that starts now: those of
// RELAY_TOOLSETS; if that is unset, core, and notebook if the working folder or one of
// RELAY_NOTEBOOK_DIRS holds a notebook. It takes at most 30 ms. With an error, the result is
// as if the setting were unset.
func Toolsets(s Settings) (served []toolsets.Toolset, err error) {
	if text := s.Get("RELAY_TOOLSETS"); text != "" {
		if served, err = toolsets.Parse(text); err == nil {
			return served, nil
		}
		err = fmt.Errorf("RELAY_TOOLSETS %w", err)
	}
	dirs, _ := pathList(s, "RELAY_NOTEBOOK_DIRS")                          // Load reports what is wrong
	if here, err := os.Getwd(); err == nil && filepath.Dir(here) != here { // hosts start relays in the root folder, too
		dirs = append([]string{here}, dirs...)
	}
	served = []toolsets.Toolset{toolsets.Core}
	if holdsNotebook(dirs) {
		served = append(served, toolsets.Notebook)
	}
	return served, err
}

// holdsNotebook looks for a notebook in folders and the folders below them, as far as the
// bounds allow.
func holdsNotebook(dirs []string) bool {
	ctx, done := context.WithTimeout(context.Background(), lookTime)
	defer done()
	found := make(chan bool, 1)
	go func() { // which a dead network drive may hold forever
		l := look{ctx: ctx, left: lookEntries}
		found <- l.through(dirs)
	}()
	select {
	case yes := <-found:
		return yes
	case <-ctx.Done():
		return false
	}
}

// look is one look for a notebook.
type look struct {
	ctx  context.Context
	left int // entries that may still be read
}

// through looks level by level, so that a notebook near the top is found in any tree.
func (l *look) through(level []string) bool {
	for range lookDepth + 1 {
		var below []string
		for _, dir := range level {
			found, folders := l.in(dir)
			if found {
				return true
			}
			below = append(below, folders...)
		}
		level = below
	}
	return false
}

// in looks at the entries of a folder and returns the folders among them. It follows no
// links, and leaves out hidden folders and those of packages.
func (l *look) in(dir string) (found bool, folders []string) {
	f, err := os.Open(dir)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	for l.left > 0 && l.ctx.Err() == nil {
		entries, err := f.ReadDir(min(l.left, 200))
		l.left -= len(entries)
		for _, e := range entries {
			name := e.Name()
			switch {
			case strings.HasPrefix(name, "."), name == "node_modules":
			case e.IsDir():
				folders = append(folders, filepath.Join(dir, name))
			case e.Type().IsRegular() && strings.HasSuffix(name, ".ipynb"):
				return true, nil
			}
		}
		if err != nil {
			break // io.EOF, or the folder cannot be read
		}
	}
	return false, folders
}

// pathList returns the paths of a setting that is a list as PATH is.
func pathList(s Settings, setting string) (paths []string, err error) {
	for _, path := range filepath.SplitList(s.Get(setting)) {
		if path, err = expandHome(path); err != nil {
			return paths, fmt.Errorf("%s: %v", setting, err)
		}
		if !filepath.IsAbs(path) {
			return paths, fmt.Errorf("%s contains %q: use absolute paths or paths that begin with ~/, separated by %q", setting, path, filepath.ListSeparator)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
