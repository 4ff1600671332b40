package account

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a program of the kernel with the rights of u, and without a way to others:
// it has no capabilities, set-user-id programs give it none (no_new_privs), and it gets a
// session keyring of its own. The calling goroutine must have locked its thread and must
// never unlock it, because the thread is restricted as well.
func (u *User) Start(cmd *exec.Cmd) error { return u.start(cmd, u.mark(kernelMark)) }

func (u *User) start(cmd *exec.Cmd, mark int) error {
	if u == nil {
		return cmd.Start()
	}
	if err := restrictThread(); err != nil {
		return fmt.Errorf("restricting what is started for user %q: %w", u.Name, err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = u.credential(mark)
	if err := cmd.Start(); err != nil {
		return err
	}
	if mark == 0 {
		return nil
	}
	status, err := os.ReadFile(statusFile(cmd.Process.Pid))
	if err == nil && isMarked(status, mark) {
		return nil
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return errors.Join(errHidden, err)
}

// errHidden: what the executor can't find, it can't end.
var errHidden = errors.New("/proc does not show the executor the groups of other users' processes, so it could not end what the kernel starts: give the executor the capability SYS_PTRACE, or mount /proc without the option hidepid")

// credential makes Linux drop all capabilities, because the user is not root.
func (u *User) credential(mark int) *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
	for _, id := range u.groups {
		c.Groups = append(c.Groups, uint32(id))
	}
	if mark != 0 {
		c.Groups = append(c.Groups, uint32(mark))
	}
	return c
}

// restrictThread restricts what the calling thread starts from now on. In a container
// without CAP_SETPCAP or keyctl, no_new_privs alone has the same effect: no program can get
// a capability, and the container has a keyring of its own.
func restrictThread() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	for capability := uintptr(0); ; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			break // there are no more, or they can't be dropped
		}
	}
	dropInheritable()
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("making a session keyring: %w", err)
	}
	return nil
}

// dropInheritable keeps the calling thread's capabilities out of what it starts.
func dropInheritable() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	_ = unix.Capset(&header, &data[0])
}
