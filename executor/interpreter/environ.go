package interpreter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	pythonPath = "PYTHONPATH"
	// givenPath holds the original PYTHONPATH if Environ changed it. A kernel restores the
	// original before it runs the user's code.
	givenPath = "COLAB_RELAY_PYTHONPATH"
)

// Environ returns base for a Python that starts outside workDir. Relative entries of
// PYTHONPATH become absolute, based on workDir, and workDir itself is removed: entries of
// PYTHONPATH, such as the empty one of `PYTHONPATH=$PYTHONPATH:/more`, come before the
// standard library.
func Environ(base []string, workDir string) []string {
	environ := slices.Clone(base)
	for i, entry := range environ {
		given, found := strings.CutPrefix(entry, pythonPath+"=")
		if !found {
			continue
		}
		if path := outside(given, workDir); path != given {
			environ[i] = pythonPath + "=" + path
			return append(environ, givenPath+"="+given)
		}
	}
	return environ
}

// outside returns a PYTHONPATH without workDir, with absolute entries.
func outside(path, workDir string) string {
	var kept []string
	for entry := range strings.SplitSeq(path, string(os.PathListSeparator)) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(workDir, entry)
		}
		if !sameFolder(entry, workDir) {
			kept = append(kept, entry)
		}
	}
	return strings.Join(kept, string(os.PathListSeparator))
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
