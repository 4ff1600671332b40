package privileged

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/stacks"
)

// stage tells a child process how far it is.
const stage = "TEST_PRIVILEGED"

// Run runs the test again in a child process: as root, through sudo if the tests run as
// another user, in its own mount namespace. In the child it returns true; in the parent it
// waits for the child and returns false. Without root and sudo the test fails: nothing else
// can show what another user is kept from.
func Run(t *testing.T) bool {
	t.Helper()
	switch {
	case os.Getenv(stage) == "ready":
		if err := openStacks(t); err != nil {
			t.Fatal(err)
		}
		return true
	case os.Geteuid() != 0:
		rerun(t, "root", exec.CommandContext(t.Context(), "sudo", "-n", "--preserve-env", os.Args[0]))
	default:
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		rerun(t, "ready", cmd)
	}
	return false
}

func rerun(t *testing.T, next string, cmd *exec.Cmd) {
	t.Helper()
	cmd.Args = append(cmd.Args, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), stage+"="+next)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("run as root, or allow sudo without a password: %v:\n%s", err, out)
	}
}

// openStacks makes the Python environments and the interpreters below them reachable for
// every user, though they may be in a home folder that is closed to others.
func openStacks(t *testing.T) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	var needed []string
	for _, s := range stacks.All(t) {
		out, err := exec.Command(s.Python, "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')").Output()
		if err != nil {
			return fmt.Errorf("asking %q where it is: %w", s.Python, err)
		}
		for path := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				return err
			}
			needed = append(needed, real)
		}
	}
	return open(t, needed)
}

// open covers each folder that keeps others out with an open one, in which only the needed
// paths are.
func open(t *testing.T, needed []string) error {
	inside := map[string][]string{}
	for _, path := range needed {
		if wall := closed(path); wall != "" && !slices.Contains(inside[wall], path) {
			inside[wall] = append(inside[wall], path)
		}
	}
	for wall, paths := range inside {
		var kept []string
		for _, path := range paths {
			aside := t.TempDir()
			if err := bind(path, aside); err != nil {
				return err
			}
			kept = append(kept, aside)
		}
		if err := syscall.Mount("tmpfs", wall, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("covering %q: %w", wall, err)
		}
		for i, path := range paths {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			if err := bind(kept[i], path); err != nil {
				return err
			}
			if err := syscall.Unmount(kept[i], syscall.MNT_DETACH); err != nil {
				return err
			}
		}
	}
	return nil
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %q to %q: %w", from, to, err)
	}
	return nil
}

// closed is the first folder on the way to path that others can't enter, or "".
func closed(path string) string {
	for _, at := range slices.Backward(ancestors(path)) {
		if info, err := os.Stat(at); err == nil && info.Mode()&0o001 == 0 {
			return at
		}
	}
	return ""
}

// ancestors are the folders above path, the nearest first.
func ancestors(path string) []string {
	var all []string
	for at := filepath.Dir(path); at != "/"; at = filepath.Dir(at) {
		all = append(all, at)
	}
	return all
}

// Folder makes a folder that belongs to a user, under one that every user can enter and
// only root can change.
func Folder(t *testing.T, uid, gid int) string {
	t.Helper()
	top, err := os.MkdirTemp("", "privileged-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	folder := filepath.Join(top, "folder")
	for _, err := range []error{os.Chmod(top, 0o755), os.Mkdir(folder, 0o755), os.Chown(folder, uid, gid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
