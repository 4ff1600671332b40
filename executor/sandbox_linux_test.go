package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"colabrelay/shared/contract"
	"colabrelay/shared/privileged"
	"colabrelay/shared/tier"
)

// otherUser runs the kernels of these tests. Every Linux system has it.
const otherUser = "nobody"

// sandbox is an executor of root whose kernel runs as otherUser.
type sandbox struct {
	*program
	top   string // of root; others can enter it and read what is readable for them
	state string
	uid   int
}

// newSandbox prepares the executor. The working directory belongs to otherUser.
func newSandbox(t *testing.T, options ...option) *sandbox {
	t.Helper()
	who, err := user.Lookup(otherUser)
	must(t, err)
	uid, err := strconv.Atoi(who.Uid)
	must(t, err)
	gid, err := strconv.Atoi(who.Gid)
	must(t, err)
	work := privileged.Folder(t, uid, gid)
	x := &sandbox{top: filepath.Dir(work), uid: uid}
	x.state = filepath.Join(x.top, "state")
	attacks, err := os.ReadFile(filepath.Join("testdata", "attacks.py"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(x.top, "attacks.py"), attacks, 0o644))
	x.program = newProgram(t, append([]option{in(work)}, options...)...)
	x.file = filepath.Join(x.top, "ready.json")
	x.cmd.Args = append(x.cmd.Args, "--workdir", work, "--ready-file", x.file, "--user", otherUser, "--state-dir", x.state)
	return x
}

// startSandbox starts the executor and returns when its kernel runs.
func startSandbox(t *testing.T, options ...option) *sandbox {
	t.Helper()
	x := newSandbox(t, options...)
	x.run()
	x.ready()
	return x
}

// path is a path in the executor's own folder.
func (x *sandbox) path(name string) string { return filepath.Join(x.top, name) }

// attack runs a function of attacks.py in the kernel and returns the repr of its result.
func (x *sandbox) attack(call string) string {
	x.t.Helper()
	e := x.submit(fmt.Sprint("attack-", time.Now().UnixNano()), x.code(call), 50)
	if e.Status != contract.StatusSucceeded {
		x.t.Fatalf("%s ended as %s: %+v", call, e.Status, e.Events)
	}
	return resultOf(e)
}

func (x *sandbox) code(call string) string {
	return "import os, sys\nsys.path.insert(0, " + pyString(x.top) + ")\nimport attacks\nattacks." + call
}

// value runs an expression in the kernel and returns its repr.
func (x *sandbox) value(expression string) string {
	x.t.Helper()
	return resultOf(x.submit(fmt.Sprint("value-", time.Now().UnixNano()), "import os\n"+expression, 20))
}

// refused checks that a request gets an error, and returns its code.
func (x *sandbox) refused(method, path string, in any) contract.Code {
	x.t.Helper()
	var body []byte
	if in != nil {
		body, _ = json.Marshal(in)
	}
	res, answer := x.send(x.sealed(method, path, body, time.Now()))
	var out contract.ErrorBody
	if err := json.Unmarshal(answer, &out); err != nil || res.StatusCode == http.StatusOK || out.Error.Code == "" {
		x.t.Errorf("%s %s was answered with %d %s", method, path, res.StatusCode, answer)
	}
	return out.Error.Code
}

// private makes a file of root that nobody else can read, in a folder that others can't enter.
func (x *sandbox) private(name, content string) string {
	x.t.Helper()
	path := x.path(name)
	must(x.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(x.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// processes are those of otherUser whose command line contains a text. Where the first thread has
// ended, another one has the command line.
func (x *sandbox) processes(text string) []int {
	x.t.Helper()
	folders, err := os.ReadDir("/proc")
	must(x.t, err)
	var found []int
	for _, folder := range folders {
		pid, err := strconv.Atoi(folder.Name())
		if err != nil {
			continue
		}
		threads, _ := filepath.Glob(filepath.Join("/proc", folder.Name(), "task", "*", "cmdline"))
		var line []byte
		for _, thread := range threads {
			own, _ := os.ReadFile(thread)
			line = append(line, own...)
		}
		status, _ := os.ReadFile(filepath.Join("/proc", folder.Name(), "status"))
		if strings.Contains(string(line), text) && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", x.uid)) {
			found = append(found, pid)
		}
	}
	return found
}

// asContained as the value of asProgram starts an executor with the restrictions of
//
//	docker run --user 0 --cap-drop ALL --cap-add SETUID --cap-add SETGID --cap-add KILL --security-opt no-new-privileges
//
// and with the refusals of Docker's seccomp profile that can matter here. No Docker daemon
// is needed: these are the system calls that it makes.
const asContained = "contained"

// containerCapabilities are those that --user needs.
var containerCapabilities = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL}

// becomeContained starts this program again, restricted.
func becomeContained() {
	runtime.LockOSThread() // the restrictions are the thread's, and exec keeps them
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if !slices.Contains(containerCapabilities, capability) {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // an old kernel knows fewer
		}
	}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = refuseSystemCalls()
	}
	self, noSelf := os.Executable()
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return entry == asProgram+"="+asContained })
	if err == nil && noSelf == nil {
		err = syscall.Exec(self, os.Args, append(environ, asProgram+"=1"))
	}
	fmt.Fprintln(os.Stderr, "starting again:", err, noSelf)
	os.Exit(3)
}

// refusedByDocker are system calls that Docker's default profile refuses without
// capabilities.
var refusedByDocker = []uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_INIT_MODULE, unix.SYS_REBOOT, unix.SYS_SETHOSTNAME,
}

// refuseSystemCalls installs a seccomp filter: EPERM for refusedByDocker, and ENOSYS for
// clone3, whose flags a filter can't see.
func refuseSystemCalls() error {
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	const refuse, allow = 0x00050000, 0x7fff0000 // SECCOMP_RET_ERRNO and _ALLOW
	filter := []unix.SockFilter{{Code: load, K: 0}}
	for _, number := range refusedByDocker {
		filter = append(filter, unix.SockFilter{Code: equal, Jf: 1, K: number}, unix.SockFilter{Code: give, K: refuse | uint32(unix.EPERM)})
	}
	filter = append(filter, unix.SockFilter{Code: equal, Jf: 1, K: unix.SYS_CLONE3}, unix.SockFilter{Code: give, K: refuse | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: give, K: allow})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// readOnly mounts the root folder read-only, and at writable an empty disk. The test ends
// the executor before it undoes that.
func readOnly(t *testing.T, writable string) {
	t.Helper()
	must(t, syscall.Mount("tmpfs", writable, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=1777"))
	must(t, syscall.Mount("none", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	t.Cleanup(func() {
		must(t, syscall.Mount("none", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
		must(t, syscall.Unmount(writable, syscall.MNT_DETACH))
	})
}

// The documented container with two users: a read-only root folder, three capabilities, no
// new privileges and seccomp.
func TestUserWorksInARestrictedContainer(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	x := newSandbox(t)
	writable := x.path("writable")
	must(t, os.Mkdir(writable, 0o777))
	readOnly(t, writable)
	work := filepath.Join(writable, "work")
	for _, dir := range []string{work, filepath.Join(writable, "tmp"), filepath.Join(writable, "var")} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, os.Chmod(filepath.Join(writable, "tmp"), 0o777|os.ModeSticky))
	must(t, os.Chown(work, x.uid, x.uid))
	state := filepath.Join(writable, "var", "state")
	x.file = filepath.Join(writable, "var", "ready.json")
	x.cmd.Args = append(x.cmd.Args, "--workdir", work, "--state-dir", state, "--ready-file", x.file)
	x.cmd.Env = append(x.cmd.Env, asProgram+"="+asContained, "TMPDIR="+filepath.Join(writable, "tmp"))
	x.cmd.Dir = work
	x.run()
	x.ready()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))
	must(t, err)
	for _, line := range []string{"\nCapEff:\t00000000000000e0\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("the executor does not run with %q:\n%s", line, status)
		}
	}
	program := filepath.Join(writable, "no-such-program")
	for expression, want := range map[string]string{
		"sorted(set(os.getresuid()))":              fmt.Sprintf("[%d]", x.uid),
		"open('made', 'w').close() or os.getcwd()": "'" + work + "'",
	} {
		if got := x.value(expression); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
	for call, want := range map[string]string{
		fmt.Sprintf("memory(%d)", x.cmd.Process.Pid): "[]", fmt.Sprintf("signals(%d)", x.cmd.Process.Pid): "[]",
		fmt.Sprintf("files(%s, %s)", pyList([]string{state, x.file, filepath.Dir(x.file)}), pyString(work)): fmt.Sprintf("['list %s']", filepath.Dir(x.file)),
		fmt.Sprintf("rights('/usr/bin/id', %s)", pyString(program)):                                         `['CapBnd:\t00000000000000e0']`, // without CAP_SETPCAP it stays, and no_new_privs keeps programs from using it
	} {
		if got := x.attack(call); got != want {
			t.Errorf("%s: %s worked, want %s", call, got, want)
		}
	}
	up := call[contract.Upload](x.program, "POST", contract.PathUploads, contract.UploadStart{Path: "made-by/upload/"})
	if up.Status != contract.UploadCommitted {
		t.Errorf("the folder is %+v", up)
	}
	x.attack("stay('left-by-" + state + "')")
	x.restart()
	if left := x.processes("left-by-" + state); len(left) > 0 {
		t.Errorf("processes %v outlive the kernel", left)
	}
}
