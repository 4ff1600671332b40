package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/shared/e2e/harness"
)

// supervise runs this command again as a worker that has no network but loopback. Afterwards it
// ends all processes that the worker's programs have left, and removes its folder: hosts start
// daemons, which outlive them.
func supervise(ctx context.Context, args []string) (err error) {
	dir, err := os.MkdirTemp("", "colab-relay-hosts-")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(os.RemoveAll(dir), err) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Orphans become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	// The worker is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { err = cmp.Or(sweep(), err) }()
	return runWorker(ctx, self, append([]string{"-worker", dir}, args...))
}

// runWorker runs the worker in a network namespace, or without one if the system refuses.
func runWorker(ctx context.Context, self string, args []string) error {
	own := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Geteuid(); id != 0 {
		own.Cloneflags |= syscall.CLONE_NEWUSER
		own.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		own.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd := workerCommand(ctx, self, own, append([]string{"-isolated"}, args...))
	err := cmd.Start()
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoNamespace, err)
	} else {
		err = workerError(cmd.Wait())
	}
	if !errors.Is(err, errNoNamespace) {
		return err
	}
	fmt.Printf("The hosts run without a network namespace: %v\n", err)
	return workerError(workerCommand(ctx, self, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, args).Run())
}

// workerError returns what the end of a worker means.
func workerError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	switch exit.ExitCode() {
	case 1:
		return errReported
	case noLoopbackCode:
		return errNoNamespace
	}
	return err
}

func workerCommand(ctx context.Context, self string, attributes *syscall.SysProcAttr, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, attributes
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// raiseLoopback makes the loopback interface of a new network namespace usable.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raising the loopback interface: %w", err)
	}
	return nil
}

// sweep kills all children of this process and what they have started.
func sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := harness.Poll(ctx, func() (bool, error) {
		self, err := harness.ProcessOf(os.Getpid())
		if err != nil {
			return false, err
		}
		for _, child := range self.Children {
			_ = unix.Kill(child, unix.SIGKILL)
			var status unix.WaitStatus
			_, _ = unix.Wait4(child, &status, unix.WNOHANG, nil)
		}
		return len(self.Children) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("ending the processes that the hosts left: %w", err)
	}
	return nil
}
