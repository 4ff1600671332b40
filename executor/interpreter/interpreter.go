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
