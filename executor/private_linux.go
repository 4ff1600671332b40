package main

import "golang.org/x/sys/unix"

// keepPrivate makes this process's memory and the environment it was started with
// unreadable for other processes of the same user: /proc/PID/mem, /proc/PID/environ and
// ptrace then need CAP_SYS_PTRACE. Both hold the secret, and the kernel's code runs as the
// same user. Linux gives the attribute up at exec, so every child is readable again and
// must be given no secret. Root is not kept out.
func keepPrivate() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
