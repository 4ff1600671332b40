package interpreter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	pythonPath = "PYTHONPATH"
	// GivenPath holds PYTHONPATH as the executor was given it, where Environ changed it.
	// Whoever runs the user's code puts it back first.
	GivenPath = "COLAB_RELAY_PYTHONPATH"
)

// Environ is base for a Python that starts outside workDir: relative entries of
// PYTHONPATH mean what they mean in workDir, and workDir itself is left out. There, an
// entry such as the empty one of `PYTHONPATH=$PYTHONPATH:/more` comes before the
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
			return append(environ, GivenPath+"="+given)
		}
	}
	return environ
}

// outside is a PYTHONPATH without workDir, every entry absolute.
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
