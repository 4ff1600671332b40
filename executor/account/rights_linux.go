package account

import (
	"fmt"
	"os"
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
