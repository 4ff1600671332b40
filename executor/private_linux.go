package main

import "golang.org/x/sys/unix"

// keepPrivate makes this process's memory and initial environment unreadable for other
// processes of the same user: /proc/PID/mem, /proc/PID/environ and ptrace then require
// CAP_SYS_PTRACE. Both hold the secret, and the kernel's code runs as the same user.
// Linux resets the attribute at exec, so child processes are readable and must not get
// a secret. Root is not kept out.
func keepPrivate() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
