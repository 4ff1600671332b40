// Package account is the user with whose rights the kernel's code runs, where that is
// another one than the executor's: programs are started, files opened and sockets
// connected with that user's rights, so the executor's own rights never help that code.
//
// A nil *User is the executor's own user; every method then does what the system does
// anyway. The package must not know what is started or opened. It works on Linux only.
// Start reading at Find, then at User.Do and User.Start.
package account

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/bounded"
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

// marks are two supplementary group ids that no other programs have: one for the kernel
// and what it starts, one for the executor's scripts. A process can't leave its groups, so
// they tell which processes are the kernel's, whatever these do: fork, setsid, change
// their name or environment, or outlive their executor.
type marks struct{ kernel, script int }

const (
	kernelMark = iota
	scriptMark
)

// For returns u for one executor, known by the place of its state folder. What it starts is marked.
func (u *User) For(place string) *User {
	if u == nil {
		return nil
	}
	marked := *u
	sum := sha256.Sum256([]byte(place))
	first := firstMark(binary.BigEndian.Uint32(sum[:]))
	marked.marks = marks{first, first + 1}
	return &marked
}

// mark is a group id, or 0 before For.
func (u *User) mark(which int) int {
	switch {
	case u == nil:
		return 0
	case which == kernelMark:
		return u.marks.kernel
	}
	return u.marks.script
}

// Where marks lie on a machine that has all group ids: above those of any distribution,
// container tool or directory service by default, and below those that some programs take
// for negative numbers.
const (
	lowestMark = 1 << 30
	markPairs  = 1 << 28
)

// firstMark is the first of two group ids, chosen by a random number. In a container whose
// groups are few, they are near the upper end.
func firstMark(random uint32) int {
	if highest := highestGroup(); highest < lowestMark+2*markPairs {
		pairs := min(highest/4, 1000)
		return highest - 2 - 2*(1+int(random)%pairs) // the uppermost may be nogroup
	}
	return lowestMark + 2*int(random%markPairs)
}

const (
	// maxOutput bounds what Output returns: packages may run code in a script of the executor,
	// and must not fill its memory.
	maxOutput = 16 << 20
	// maxErrors bounds what is kept of stderr.
	maxErrors = 64 << 10
)

// Output runs a program with the rights of u, as Start does, and returns what it wrote to
// stdout. Of what it wrote to stderr, the end is in the *exec.ExitError.
func (u *User) Output(cmd *exec.Cmd) ([]byte, error) {
	out, errs := &bounded.Buffer{Max: maxOutput}, &bounded.Tail{Max: maxErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	started := make(chan error)
	go func() {
		if u != nil {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		}
		started <- u.start(cmd, u.mark(scriptMark))
	}()
	err := <-started
	if err == nil {
		err = cmd.Wait() // fails also if it wrote more than maxOutput
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		exit.Stderr = []byte(errs.String())
	}
	return out.Bytes(), err
}

// removeLimit bounds RemoveAll: code of u may have filled the folder so that its removal takes
// for ever.
const removeLimit = 10 * time.Second

// RemoveAll is os.RemoveAll with the rights of u. It takes a process of its own, whose memory is
// not the executor's.
func (u *User) RemoveAll(path string) error {
	if u == nil {
		return os.RemoveAll(path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	rm := exec.CommandContext(ctx, "rm", "-rf", "--", path)
	rm.Env = []string{} // nothing of the executor's
	if _, err := u.Output(rm); err != nil {
		return fmt.Errorf("remove %q, which user %q may have filled: %w; remove it by hand", path, u.Name, err)
	}
	return nil
}

// outputDelay bounds the wait for a child process that outlives the script and keeps its
// output open.
const outputDelay = time.Second

// RunPython runs a script of the executor, given on stdin, with the rights of u, and returns what it
// wrote to stdout. Installed packages may run their own code when Python starts. Python puts its
// current directory first in sys.path, so the script runs in a new empty folder. Python's
// options do not help: -P exists since Python 3.11 only, and -I also ignores PYTHONPATH
// and the user's own packages, where ipykernel may be.
func (u *User) RunPython(ctx context.Context, python, script string, environ []string) (out []byte, err error) {
	var dir string
	u.Do(func() { dir, err = os.MkdirTemp("", "colab-relay-python-") })
	if err != nil {
		return nil, fmt.Errorf("making an empty folder to run Python in: %w", err)
	}
	defer u.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, python, "-")
	cmd.Dir = dir
	cmd.Env = environ
	cmd.Stdin = strings.NewReader(script)
	cmd.WaitDelay = outputDelay
	return u.Output(cmd)
}
