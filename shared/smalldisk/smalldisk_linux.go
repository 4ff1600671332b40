package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// env tells the child process the folder of its disk.
const env = "TEST_SMALL_DISK"

// Run runs the test again in a child process that has a disk of this many MiB. In the
// child it returns the disk's folder; in the parent it waits for the child and returns "".
// The child gets a mount namespace and, without root, a user namespace.
func Run(t *testing.T, megabytes int) string {
	t.Helper()
	if dir := os.Getenv(env); dir != "" {
		if err := Mount(dir, megabytes); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	Isolate(cmd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v:\n%s", err, out)
	}
	return ""
}

// Isolate gives the command a mount namespace of its own and, without root, a user namespace, so
// that it may call Mount. The command cannot start if the system forbids that. It gets a SIGTERM
// when the thread that starts it ends.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// Mount mounts an empty disk of this many MiB on dir. Only this process, which Isolate prepared, and
// its children see it.
func Mount(dir string, megabytes int) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		return fmt.Errorf("mounting a disk on %q: %w", dir, err)
	}
	return nil
}

// Unmount removes the disk on dir. What is in it is gone when no process uses it any more.
func Unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// Fill creates a file at path that uses all remaining space of the disk.
func Fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := FillWith(f); err != nil {
		t.Fatal(err)
	}
}

// FillWith lets the file grow until it uses all remaining space of its disk.
func FillWith(f *os.File) (err error) {
	for _, piece := range []int{64 << 10, 1} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, piece)) {
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}
