package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
