package main

import "golang.org/x/sys/unix"

// blockStderr makes a program wait while the pipe behind its standard error is full. Go opens the
// pipes of its child processes without that, and a child's runtime drops what does not fit.
func blockStderr(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	stderr, err := unix.PidfdGetfd(process, 2, 0)
	if err != nil {
		return err
	}
	defer unix.Close(stderr)
	return unix.SetNonblock(stderr, false)
}
