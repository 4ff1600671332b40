package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/program"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/filename"
)

// downloadDirs returns the folders beside LOCAL_SAVE_DIR in which tools may save downloads:
// those of RELAY_DOWNLOAD_DIRS; if that is unset, the project in which the host started the
// relay.
func downloadDirs(s Settings) ([]string, error) {
	if s.Get("RELAY_DOWNLOAD_DIRS") != "" {
		return pathList(s, "RELAY_DOWNLOAD_DIRS")
	}
	working, err := os.Getwd()
	if err != nil {
		return nil, nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !isProject(working, home) {
		return nil, nil
	}
	return []string{working}, nil
}

// programFolders are folders of a home folder in which programs keep their data. Some hosts
// start relays there.
var programFolders = []string{"AppData", "Library", "snap"}

// isProject reports whether a working folder is one that a person works in, rather than where
// a host that has no project starts relays: it is below the home folder, not hidden, and not
// among the data of programs. A home folder that is the root, as in some containers, has no
// projects.
func isProject(working, home string) bool {
	working, err := filepath.EvalSymlinks(working)
	if err != nil {
		return false
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return false
	}
	rel, err := filepath.Rel(home, working)
	if err != nil || home == filepath.Dir(home) || rel == "." || !filepath.IsLocal(rel) {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	hidden := slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") })
	return !hidden && !slices.Contains(programFolders, parts[0])
}

// Bounds of RELAY_HISTORY, in MB.
const (
	defaultHistoryMB = 200
	leastHistoryMB   = 1
	mostHistoryMB    = 1 << 20
)

// history returns the folder of the history and its bound in bytes. The folder is not created:
// the first run does that. If the history is off, the folder is empty.
func (r *reader) history() (dir string, bytes int64) {
	if r.Get("RELAY_HISTORY") == "off" {
		return "", 0
	}
	mb := number(r, "RELAY_HISTORY", defaultHistoryMB, leastHistoryMB, mostHistoryMB, "off, or a number of megabytes from %v to %v")
	return ownDir("history"), int64(mb) << 20
}

// Bounds of the settings for what the relay keeps of chunked runs. The relay does not
// hold such a file in memory, but the kernel writes it to the VM's disk: a state of more
// than 4 GB is for save_kernel_state, which the user asks for.
const (
	leastKeepEvery = time.Second
	mostKeepEvery  = 24 * time.Hour
	mostKeepMB     = 4096
	mostTunnelMB   = 1 << 20
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
		found <- look(ctx, dirs)
	}()
	select {
	case yes := <-found:
		return yes
	case <-ctx.Done():
		return false
	}
}

// look looks level by level, so that a notebook near the top is found in any tree. It follows no
// links, and leaves out hidden folders and those of packages.
func look(ctx context.Context, level []string) bool {
	left := lookEntries
	for range lookDepth + 1 {
		var below []string
		for _, dir := range level {
			f, err := os.Open(dir)
			if err != nil {
				continue
			}
			entries, _ := f.ReadDir(left)
			f.Close()
			for _, e := range entries {
				name := e.Name()
				switch {
				case strings.HasPrefix(name, "."), name == "node_modules":
				case e.IsDir():
					below = append(below, filepath.Join(dir, name))
				case e.Type().IsRegular() && strings.HasSuffix(name, ".ipynb"):
					return true
				}
			}
			if left -= len(entries); left <= 0 || ctx.Err() != nil {
				return false
			}
		}
		level = below
	}
	return false
}

// pathList returns the paths of a setting that is a list as PATH is.
func pathList(s Settings, setting string) (paths []string, err error) {
	for _, path := range filepath.SplitList(s.Get(setting)) {
		if path, err = filename.Typed(path); err != nil {
			return paths, fmt.Errorf("%s: %v", setting, err)
		}
		if !filepath.IsAbs(path) {
			return paths, fmt.Errorf("%s contains %q: use absolute paths or paths that begin with ~/, separated by %q", setting, path, filepath.ListSeparator)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Bounds of RELAY_PAGE_PORT. The ports below need the rights of an administrator.
const (
	leastPagePort = 1024
	mostPagePort  = 65535
)

// ownDir returns the folder of that name in the relay's data folder. A user without a home
// folder has none.
func ownDir(name string) string {
	data, err := program.DataDir()
	if err != nil {
		return ""
	}
	return filepath.Join(data, "colab-relay", name)
}
