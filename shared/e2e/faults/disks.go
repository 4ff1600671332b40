package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"colabrelay/shared/smalldisk"
)

// diskMegabytes is the size of the disk of a VM and of a laptop. What the operations of a step
// need fits several times.
const diskMegabytes = 160

// isolated is a variable of the environment that tells the suite that it has its own mounts.
const isolated = "FAULTS_ISOLATED"

// again runs this program again where it may mount disks, and returns its exit code. ok is false if
// the system forbids that.
func again(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, ok bool) {
	runtime.LockOSThread() // see Isolate
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	smalldisk.Isolate(cmd)
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	_ = cmd.Wait() // the program has printed its error
	return cmd.ProcessState.ExitCode(), true
}

// disks are the small disks of the VMs and laptops. Without small, they are ordinary folders, and no
// disk ever fills up.
type disks struct {
	small bool

	mu      sync.Mutex
	mounted []string
}

// newDisks returns small disks if the system allows them, which it finds out in dir, and prints a
// line if it does not.
func newDisks(dir string, out io.Writer) *disks {
	err := errors.New("the suite could not get a mount namespace")
	if os.Getenv(isolated) != "" {
		probe := filepath.Join(dir, "probe")
		if err = os.Mkdir(probe, 0o700); err == nil {
			err = errors.Join(smalldisk.Mount(probe, 1), smalldisk.Unmount(probe), os.Remove(probe))
		}
	}
	if err != nil {
		fmt.Fprintf(out, "full disks are left out of this run: %v\n", err)
	}
	return &disks{small: err == nil}
}

// add makes a folder that has a disk of its own.
func (d *disks) add(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err != nil || !d.small {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := smalldisk.Mount(dir, diskMegabytes); err != nil {
		return err
	}
	d.mounted = append(d.mounted, dir)
	return nil
}

// fill fills the disk of a folder, and frees it again when hold returns.
func (d *disks) fill(dir string, hold func()) (struck bool, err error) {
	if !d.small {
		return false, nil
	}
	f, err := os.CreateTemp(dir, "filler")
	if err != nil {
		return false, err
	}
	if err = smalldisk.FillWith(f); err == nil {
		hold()
	}
	return true, errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// close removes the disks. With keep, their contents stay in the folders.
func (d *disks) close(keep bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, dir := range d.mounted {
		copied := dir + ".copy"
		if keep {
			errs = append(errs, exec.Command("cp", "-a", dir, copied).Run())
		}
		errs = append(errs, smalldisk.Unmount(dir))
		if keep {
			errs = append(errs, os.Remove(dir), os.Rename(copied, dir))
		}
	}
	d.mounted = nil
	return errors.Join(errs...)
}
