package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/executor/account"
	"colabrelay/executor/interpreter"
	"colabrelay/shared/kernelpy"
)

// findTimeout bounds the query of one interpreter: a cold disk takes seconds.
const findTimeout = 60 * time.Second

// ErrNoPython means that no interpreter with ipykernel was found.
var ErrNoPython = errors.New("no Python with ipykernel")

// Python is an interpreter that can run a kernel.
type Python struct {
	Path      string `json:"executable"` // absolute
	Version   string `json:"version"`
	IPyKernel string `json:"ipykernel"`
	IPython   string `json:"ipython"`
}

// Find returns the first interpreter that has ipykernel: python or, if that is empty, the
// one of the virtual environment that this program is installed in, python3 on PATH or
// /usr/bin/python3. The interpreters run with the rights of a user. environ is from Environ.
// The error is ErrNoPython and says what each interpreter lacks.
func Find(ctx context.Context, as *account.User, python string, environ []string) (Python, error) {
	candidates := []string{"python3", "/usr/bin/python3"}
	if own, err := os.Executable(); err == nil {
		candidates = append(inEnvironment(own), candidates...)
	}
	if python != "" {
		candidates = []string{python}
	}
	var faults []string
	for _, candidate := range candidates {
		found, err := query(ctx, as, candidate, environ)
		switch {
		case err == nil:
			return found, nil
		case python != "" && errors.Is(err, fs.ErrNotExist):
			return Python{}, fmt.Errorf("%w: --python %s: no such file", ErrNoPython, python)
		}
		faults = append(faults, fmt.Sprintf("%s: %s", candidate, err))
	}
	return Python{}, fmt.Errorf("%w (%s): install it with `python3 -m pip install ipykernel`, or name another interpreter with --python. Where the system allows no packages, as on Debian and Ubuntu, make an environment with `python3 -m venv ~/colab-relay-python && ~/colab-relay-python/bin/pip install ipykernel`, then add --python ~/colab-relay-python/bin/python",
		ErrNoPython, strings.Join(faults, "; "))
}

// inEnvironment returns the interpreter of the virtual environment that contains a program,
// if one does: pipx and uv install packages there, without that folder on PATH.
func inEnvironment(program string) []string {
	bin := filepath.Dir(program)
	if _, err := os.Stat(filepath.Join(bin, "..", "pyvenv.cfg")); err != nil {
		return nil
	}
	return []string{filepath.Join(bin, "python3")}
}

func query(ctx context.Context, as *account.User, candidate string, environ []string) (Python, error) {
	path, err := exec.LookPath(candidate)
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another folder
	}
	if err != nil {
		return Python{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	out, err := interpreter.Run(ctx, as, path, kernelpy.Script("find"), environ)
	if err != nil {
		return Python{}, explain(as, err)
	}
	var found Python
	if err := json.Unmarshal(out, &found); err != nil {
		return Python{}, fmt.Errorf("decoding its answer: %w", err)
	}
	found.Path = path
	return found, nil
}

// explain replaces the error of a script that failed by the last line that it wrote.
func explain(as *account.User, err error) error {
	if as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("user %q cannot run it: permission denied for this file or a folder above it", as.Name)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	last := newTail()
	last.add(exit.Stderr)
	if line := last.lastLine(); line != "" {
		return errors.New(line)
	}
	return err
}
