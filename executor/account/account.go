// Package account is the user with whose rights the kernel's code runs, where that is
// another one than the executor's: programs are started, files opened and sockets
// connected with that user's rights, so the executor's own rights never help that code.
//
// A nil *User is the executor's own user; every method then does what the system does
// anyway. The package must not know what is started or opened. It works on Linux only.
// Start reading at Find, then at User.Do and User.Start.
package account

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// User is a user other than root.
type User struct {
	Name string
	Home string // may not exist

	uid, gid int
	groups   []int // supplementary groups, as the system's files list them
	marks    marks
}

// Find returns the user with a name or a number. This process must be allowed to act for
// other users, as root is.
func Find(name string) (*User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		found, err = user.LookupId(name)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no user %q on this machine: create one, for example with `useradd --create-home --shell /usr/sbin/nologin %s`", name, name)
	}
	u, err := fromSystem(found)
	if err != nil {
		return nil, fmt.Errorf("reading the account of user %q: %w", name, err)
	}
	if u.uid == 0 {
		return nil, fmt.Errorf("user %q is root: name a user without rights", name)
	}
	if err := u.check(); err != nil {
		return nil, fmt.Errorf("acting for user %q: %w: start the executor as root, or run the kernel as the executor's own user", name, err)
	}
	return u, nil
}

func fromSystem(found *user.User) (*User, error) {
	u := &User{Name: found.Username, Home: found.HomeDir}
	groups, err := found.GroupIds()
	if err != nil {
		return nil, err
	}
	for _, text := range groups {
		id, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		u.groups = append(u.groups, id)
	}
	var noUID, noGID error
	u.uid, noUID = strconv.Atoi(found.Uid)
	u.gid, noGID = strconv.Atoi(found.Gid)
	return u, errors.Join(noUID, noGID)
}

// String is the name, for messages.
func (u *User) String() string { return u.Name }

// UID is the user's number, which owns what it makes.
func (u *User) UID() int {
	if u == nil {
		return os.Geteuid()
	}
	return u.uid
}

// personal are variables that describe the executor's user or its login. Folders of that
// user are closed to others, and programs complain about them.
var personal = []string{"HOME", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "PYTHONUSERBASE"}

// Environ returns an environment for programs of u: base, but with the home folder and the
// name of u. If u has no home folder, the working folder replaces it.
func (u *User) Environ(base []string, workDir string) []string {
	if u == nil {
		return base
	}
	environ := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(personal, name) || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "SUDO_")
	})
	home := u.Home
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		home = workDir
	}
	return append(environ, "HOME="+home, "USER="+u.Name, "LOGNAME="+u.Name, "SHELL=/bin/sh")
}
