package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepPrivate makes this process's memory and initial environment unreadable for other
// processes of the same user: /proc/PID/mem, /proc/PID/environ and ptrace then require
// CAP_SYS_PTRACE. Both hold the secret, and the kernel's code runs as the same user.
// Linux resets the attribute at exec, so child processes are readable and must not get
// a secret. Root is not kept out.
func keepPrivate() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// keepDescriptors keeps files that were open when this program was started from the
// programs that it starts, the kernel above all: a shell or a service manager may have
// opened them with other rights. Go does the same for all that it opens.
func keepDescriptors() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing the open files: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
