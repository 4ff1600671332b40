// Package interpreter runs the executor's own Python scripts with the user's interpreter,
// so that files in the working directory do not replace modules of the standard library,
// as a `platform.py` there would.
//
// It must not know the purpose of a script. Start reading at Run; Environ makes the
// environment that a kernel starts with.
package interpreter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/account"
)

// outputDelay bounds the wait for a child process that outlives the script and keeps its
// output open.
const outputDelay = time.Second

// Run runs a script, given on stdin, with the rights of a user, and returns what it wrote to
// stdout. Installed packages may run their own code when Python starts. Python puts its
// current directory first in sys.path, so the script runs in a new empty folder. Python's
// options do not help: -P exists since Python 3.11 only, and -I also ignores PYTHONPATH
// and the user's own packages, where ipykernel may be.
func Run(ctx context.Context, as *account.User, python, script string, environ []string) (out []byte, err error) {
	var dir string
	as.Do(func() { dir, err = os.MkdirTemp("", "colab-relay-python-") })
	if err != nil {
		return nil, fmt.Errorf("making an empty folder to run Python in: %w", err)
	}
	defer as.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, python, "-")
	cmd.Dir = dir
	cmd.Env = environ
	cmd.Stdin = strings.NewReader(script)
	cmd.WaitDelay = outputDelay
	return as.Output(cmd)
}

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
