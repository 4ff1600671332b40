// Package sshd finds a real OpenSSH server for tests, and starts it. It must not be linked into
// either program. Start reading at Find.
package sshd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// Program is a server that can be started.
type Program struct {
	path string
	tree string // into which a package was unpacked; empty for the system's server
}

// Find prefers the system's server. Root has it on PATH, other users often not. Of an unpacked
// server each test gets a copy, which every user can run wherever the checkout lies.
func Find(t testing.TB) Program {
	t.Helper()
	for _, name := range []string{"sshd", "/usr/sbin/sshd"} {
		if path, err := exec.LookPath(name); err == nil {
			return Program{path: path}
		}
	}
	unpacked, err := filepath.EvalSymlinks(filepath.Join(stacks.Root(), ".python", "sshd"))
	if err == nil {
		_, err = os.Stat(filepath.Join(unpacked, "usr", "sbin", "sshd"))
	}
	if err != nil {
		t.Fatal("no sshd: run make python, or install the package openssh-server")
	}
	tree, err := os.MkdirTemp("", "sshd-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tree) })
	if err := os.CopyFS(tree, os.DirFS(unpacked)); err != nil {
		t.Fatal(err)
	}
	if err := openToAll(tree); err != nil {
		t.Fatal(err)
	}
	return Program{filepath.Join(tree, "usr", "sbin", "sshd"), tree}
}

// openToAll lets every user read and run what is in a tree, whatever the umask is.
func openToAll(tree string) error {
	return filepath.WalkDir(tree, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Type() == os.ModeSymlink {
			return err
		}
		return os.Chmod(path, 0o755)
	})
}

// Settings returns the lines that an unpacked server needs in its configuration.
func (p Program) Settings() (lines []string) {
	for setting, path := range map[string]string{"SshdSessionPath": "usr/lib/openssh/sshd-session", "SshdAuthPath": "usr/lib/openssh/sshd-auth"} {
		path = filepath.Join(p.tree, path)
		if _, err := os.Stat(path); p.tree != "" && err == nil {
			lines = append(lines, setting+" "+path) // since OpenSSH 9.8 and 10.0
		}
	}
	return lines
}

// Command returns a server in the foreground that logs to stderr.
func (p Program) Command(config string) *exec.Cmd {
	cmd := exec.Command(p.path, "-D", "-e", "-f", config)
	cmd.Dir = filepath.Dir(config)
	cmd.Env = os.Environ()
	if p.tree != "" {
		libraries, _ := filepath.Glob(filepath.Join(p.tree, "usr", "lib", "*-linux-*"))
		more, _ := filepath.Glob(filepath.Join(p.tree, "lib", "*-linux-*"))
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+strings.Join(append(libraries, more...), ":"))
	}
	return cmd
}
