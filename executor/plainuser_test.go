package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// asPlainUser as the value of asProgram starts an executor without privileges, also when
// root runs the tests.
const asPlainUser = "plain"

func asPlain(p *program) { p.cmd.Env = append(p.cmd.Env, asProgram+"="+asPlainUser) }

// becomePlain starts this program again without capabilities. Linux then checks root like
// any other user, but unlike another user root can still read the interpreter, wherever
// that is installed. Users other than root have no capabilities anyway.
func becomePlain() {
	runtime.LockOSThread() // the bounding set belongs to the thread, and exec keeps it
	for capability := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err == unix.EINVAL {
			break // there are no more capabilities
		}
		if err != nil && os.Geteuid() == 0 {
			fmt.Fprintln(os.Stderr, "dropping capability", capability, err)
			os.Exit(3)
		}
	}
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return entry == asProgram+"="+asPlainUser })
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, append(environ, asProgram+"=1"))
	}
	fmt.Fprintln(os.Stderr, "starting again:", err)
	os.Exit(3)
}
