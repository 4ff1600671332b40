package colabcli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"colabrelay/relay/environ"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
)

// Bounds of what is kept of the program's output, in bytes. The beginning is dropped, and the
// program can go on writing.
const (
	maxStdout = 4 << 20 // more than the result line of the longest Exec
	maxStderr = 64 << 10
)

// pipeDelay bounds the time for which output is read after the program ended: a process that
// it started may have inherited its output.
const pipeDelay = 2 * time.Second

// call is one call of the program.
type call struct {
	argv  []string
	stdin string
	limit time.Duration
	keep  *os.File // stays open in the program, if not nil
}

// result is how a call ended.
type result struct {
	code           int
	stdout, stderr string
	dropped        bool // stdout lacks its beginning
}

// run calls the program in a session of its own, so that it has no terminal to ask on, and
// ends all its processes with ctx or at the limit. An error means that the program did not run
// to its end.
func (b *Backend) run(ctx context.Context, c call) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, fmt.Errorf("%s: %w", c, err)
	}
	program, err := b.program()
	if err != nil {
		return result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	out, errs := &bounded.Tail{Max: maxStdout}, &bounded.Tail{Max: maxStderr}
	cmd := exec.CommandContext(limited, program, c.argv...)
	cmd.Env = environment(b.cfg.Environ)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), out, errs
	cmd.SysProcAttr, cmd.WaitDelay = ownSession(), pipeDelay
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	if c.keep != nil {
		cmd.ExtraFiles = []*os.File{c.keep}
	}
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = killGroup(cmd.Process) // what holds the output open
		err = nil
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String(), out.Dropped()}, c.unfinished(ctx, limited, err)
}

// unfinished returns why the program did not run to its end, or nil.
func (c call) unfinished(ctx, limited context.Context, err error) error {
	if exited, ok := errors.AsType[*exec.ExitError](err); ok && exited.Exited() {
		return nil
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", c, ctx.Err())
	case limited.Err() != nil:
		return fmt.Errorf("%s did not end within %v", c, c.limit)
	}
	return fmt.Errorf("%s: %w", c, err)
}

// String names the call without its arguments, some of which are temporary.
func (c call) String() string { return "`colab " + c.argv[0] + "`" }

// program returns the path of Google's program.
func (b *Backend) program() (string, error) {
	if runtime.GOOS == "windows" {
		return "", fmt.Errorf("%w: Google's command line does not run on Windows; use the official API instead (--backend api), or run the relay in WSL", vm.ErrNotEnabled)
	}
	if b.cfg.Program != "" {
		return b.cfg.Program, nil
	}
	if path, err := exec.LookPath("colab"); err == nil {
		return path, nil
	}
	if home, err := os.UserHomeDir(); err == nil {
		if path, err := exec.LookPath(filepath.Join(home, ".local", "bin", "colab")); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: Google's command line is not installed: %s", vm.ErrNotEnabled, install)
}

// install says how to install the program.
const install = "install it with `uv tool install google-colab-cli` (Linux or macOS, Python 3.12 or newer), then run `colab-relay vm login --backend cli`"

// passed are the variables that the program gets besides those that all programs need: how to
// verify the network's certificates, Google's login, and its own settings. It gets no
// others, because the relay's environment may have secrets.
var passed = []string{
	"PYENV_ROOT", "PYENV_VERSION", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG",
	"COLAB_CLI_REQUEST_TIMEOUT", "COLAB_CLI_ASSIGN_RETRIES", "COLAB_CLI_RETRY_BACKOFF",
}

// environment returns the program's environment. What is added makes its errors easy to read:
// UTF-8, no colours, and tracebacks without frames and line breaks.
func environment(all []string) []string {
	env := environ.Only(all, environ.Basic, environ.Proxies, passed)
	return append(env, "TERM=dumb", "NO_COLOR=1", "PYTHONUTF8=1", "TYPER_STANDARD_TRACEBACK=1")
}
