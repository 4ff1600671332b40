package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// check reports whether this process may act for u, which takes CAP_SETUID and CAP_SETGID, and
// end u's processes, which takes CAP_KILL.
func (u *User) check() (err error) {
	var now [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &now[0]); err != nil {
		return fmt.Errorf("reading this process's capabilities: %w", err)
	}
	if now[0].Effective&(1<<unix.CAP_KILL) == 0 {
		return fmt.Errorf("ending the user's processes: %w", os.ErrPermission)
	}
	done := make(chan struct{})
	go func() { // on a thread that ends, in whatever state it is left
		defer close(done)
		runtime.LockOSThread()
		err = u.become()
	}()
	<-done
	return err
}

// Do calls f with the rights of u to files, folders and sockets: what f opens, makes,
// renames, removes or connects to is allowed, and belongs to u, as if u did it. What f has
// opened stays usable afterwards. f must not start goroutines for such work, because they
// would have the executor's rights.
//
// Only the file system's user changes, and only of this thread. For signals and ptrace the
// thread stays the executor's, so code of u can't reach it meanwhile.
func (u *User) Do(f func()) {
	if u == nil {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadRights()
	if before.uid == u.uid { // within another Do
		f()
		return
	}
	defer func() {
		if err := before.take(); err != nil {
			panic(fmt.Errorf("account: returning to the executor's rights: %w", err))
		}
	}()
	if err := u.become(); err != nil {
		panic(fmt.Errorf("account: taking the rights of user %q: %w", u.Name, err)) // f must not run with the executor's
	}
	f()
}

func (u *User) become() error { return rights{u.uid, u.gid, u.groups}.take() }

// rights are what decides on one thread's access to files.
type rights struct {
	uid, gid int
	groups   []int
}

// none is an id that no user or group has; asking for it changes nothing.
const none = -1

var ownGroups, errOwnGroups = syscall.Getgroups()

func threadRights() rights {
	uid, _ := unix.SetfsuidRetUid(none)
	gid, _ := unix.SetfsgidRetGid(none)
	return rights{uid, gid, ownGroups}
}

// take gives the rights to the calling thread, which must be locked. Linux drops the
// capabilities that override permissions with the user 0, and restores them with it.
func (r rights) take() error {
	if errOwnGroups != nil {
		return fmt.Errorf("reading this process's groups: %w", errOwnGroups)
	}
	if err := setThreadGroups(r.groups); err != nil {
		return fmt.Errorf("setting the groups: %w", err)
	}
	_ = unix.Setfsgid(r.gid) // neither reports an error: see what became of them
	_ = unix.Setfsuid(r.uid)
	if now := threadRights(); now.uid != r.uid || now.gid != r.gid {
		return fmt.Errorf("setting the user: %w", os.ErrPermission)
	}
	return nil
}

// setThreadGroups sets the groups of the calling thread only, unlike syscall.Setgroups.
func setThreadGroups(ids []int) error {
	var first unsafe.Pointer
	list := make([]uint32, len(ids))
	for i, id := range ids {
		list[i] = uint32(id)
	}
	if len(list) > 0 {
		first = unsafe.Pointer(&list[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}

// in reports whether u is in a group.
func (u *User) in(gid int) bool { return gid == u.gid || slices.Contains(u.groups, gid) }

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

// ErrInReach means that a user could replace or change a file or folder.
var ErrInReach = errors.New("the user could replace it")

// CheckOutOfReach checks that u can't replace, rename or change what is at path, or put
// something there first: nothing on the way may belong to u or be writable for u. Otherwise
// u could lead what the executor writes elsewhere. It returns the path to use, in which
// links are resolved.
func (u *User) CheckOutOfReach(path string) (string, error) {
	if u == nil {
		return path, nil
	}
	found, err := existing(path)
	if err != nil {
		return "", err
	}
	for at, below := found.real, false; ; at, below = filepath.Dir(at), true {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if u.controls(at, info, below) {
			return "", fmt.Errorf("%q: %w by changing %q", path, ErrInReach, at)
		}
		if at == "/" {
			return filepath.Join(found.real, found.missing), nil
		}
	}
}

// found is a path whose first part exists.
type found struct{ real, missing string }

func existing(path string) (found, error) {
	for missing := ""; ; path = filepath.Dir(path) {
		real, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return found{real, missing}, err
		}
		missing = filepath.Join(filepath.Base(path), missing)
	}
}

// controls reports whether u can change a file, or replace what is in a folder. In a sticky
// folder, such as /tmp, users can only replace what is theirs, which the caller has checked
// if something is there.
func (u *User) controls(path string, info fs.FileInfo, below bool) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == u.uid {
		return true
	}
	sticky := below && info.Mode()&fs.ModeSticky != 0
	return u.mayWrite(path, st) && !sticky
}

// mayWrite reports whether the mode allows u to write. An access control list may allow it
// where the mode's bits of the group, which are then the list's mask, have it.
func (u *User) mayWrite(path string, st *syscall.Stat_t) bool {
	const group, others = 0o020, 0o002
	_, err := unix.Lgetxattr(path, "system.posix_acl_access", nil)
	return st.Mode&others != 0 || st.Mode&group != 0 && (err == nil || u.in(int(st.Gid)))
}

// CanRead reports whether u can open a file.
func (u *User) CanRead(path string) (can bool) {
	u.Do(func() {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if can = err == nil; can {
			f.Close()
		}
	})
	return can
}

// CheckCanWrite checks that u can make files in a folder.
func (u *User) CheckCanWrite(folder string) (err error) {
	u.Do(func() {
		var f *os.File
		if f, err = os.CreateTemp(folder, ".colab-relay-check-*"); err == nil {
			f.Close()
			err = os.Remove(f.Name())
		}
	})
	return err
}

// OwnSession makes a process the leader of a new session, away from the signals of a terminal or a
// notebook's stop button, and has Linux kill it when the executor dies, even by SIGKILL. The signal
// comes when the thread that forked ends.
func OwnSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
