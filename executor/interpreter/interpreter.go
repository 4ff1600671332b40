// Package interpreter runs the executor's own Python scripts with an interpreter that
// the user chose, apart from the files of the working directory: a `platform.py` there
// would run in place of the standard library's.
//
// It must not know what a script is for. Start reading at Run; Environ makes what a
// kernel is started with.
package interpreter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// outputDelay bounds the wait for a child that outlives the script and holds its output open.
const outputDelay = time.Second

// Run gives script to python on stdin and returns what it wrote to stdout. Python puts
// its current directory first in sys.path, so it runs in an empty folder of its own.
// The options that would do the same don't serve: -P came with Python 3.11, and -I also
// leaves out PYTHONPATH and the user's own packages, where ipykernel may be.
func Run(ctx context.Context, python, script string, environ []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "colab-relay-python-")
	if err != nil {
		return nil, fmt.Errorf("making an empty folder to run Python in: %w", err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, python, "-")
	cmd.Dir = dir
	cmd.Env = environ
	cmd.Stdin = strings.NewReader(script)
	cmd.WaitDelay = outputDelay
	return cmd.Output()
}
