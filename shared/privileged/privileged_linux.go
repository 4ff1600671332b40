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
// another user, in its own mount namespace, with the usual umask. In the child it returns
// true; in the parent it waits for the child and returns false. Without root and sudo the
// test fails: nothing else can show what another user is kept from.
func Run(t *testing.T) bool {
	t.Helper()
	switch {
	case os.Getenv(stage) == "ready":
		syscall.Umask(0o022)
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

// openStacks makes the checkout, the Python environments and the interpreters below them
// reachable for every user, though they may be in a home folder that is closed to others.
func openStacks(t *testing.T) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	needed := []string{here}
	for _, s := range stacks.All(t) {
		out, err := exec.Command(s.Python, "-c", "import sys; print(sys.prefix); print(sys.base_prefix)").Output()
		if err != nil {
			return fmt.Errorf("asking %q where it is: %w", s.Python, err)
		}
		needed = append(needed, s.Python)
		needed = append(needed, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	}
	for _, path := range needed {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		for _, way := range []string{path, real} {
			for wall := closed(way); wall != ""; wall = closed(way) {
				if err := open(wall); err != nil {
					return fmt.Errorf("opening %q to others: %w", wall, err)
				}
			}
		}
	}
	return os.Chdir(here)
}

// open covers a folder that keeps others out with an open one that has the same in it.
func open(wall string) error {
	folder, err := os.Open(wall)
	if err != nil {
		return err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", wall, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, entry := range entries {
		covered := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), entry.Name())
		if err := show(entry, covered, filepath.Join(wall, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// show makes a path the same file, folder or link as a covered one.
func show(entry os.DirEntry, covered, path string) error {
	var err error
	switch {
	case entry.Type() == os.ModeSymlink:
		target, err := os.Readlink(covered)
		if err != nil {
			return err
		}
		return os.Symlink(target, path)
	case entry.IsDir():
		err = os.Mkdir(path, 0o755)
	default:
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		return err
	}
	return syscall.Mount(covered, path, "", syscall.MS_BIND|syscall.MS_REC, "")
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
	for _, err := range []error{os.Chmod(top, 0o755), os.Mkdir(folder, 0o755), os.Chmod(folder, 0o755), os.Chown(folder, uid, gid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
