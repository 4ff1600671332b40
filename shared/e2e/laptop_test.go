package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"colabrelay/shared/within"
)

// laptop is a person's computer: a terminal for the relay's commands, and a home folder, which
// hosts may use too.
type laptop struct {
	t   *testing.T
	dir string
	env []string // for commands, beside that of newLaptop
}

func newLaptop(t *testing.T) laptop { return laptop{t: t, dir: t.TempDir()} }

func (l laptop) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(within.Context(l.t), binaries.Relay, args...)
	cmd.Dir = l.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "XDG_CONFIG_HOME=" + l.dir + "/config", "XDG_CACHE_HOME=" + l.dir + "/cache", "XDG_DATA_HOME=" + l.dir + "/data"}, l.env...)
	return cmd
}

// relay runs a command, which must succeed, and returns its output.
func (l laptop) relay(args ...string) string {
	l.t.Helper()
	cmd := l.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("relay %s: %v\n%s%s", args[0], err, out, &errs)
	}
	return string(out)
}
