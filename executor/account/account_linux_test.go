package account

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"colabrelay/shared/privileged"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nobody(t *testing.T) *User {
	t.Helper()
	u, err := Find("nobody")
	must(t, err)
	return u
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestOnlyUsersOtherThanRootAreFound(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	if byNumber, err := Find(strconv.Itoa(u.UID())); err != nil || byNumber.UID() != u.UID() || byNumber.Name != "nobody" {
		t.Errorf("by its number it is %v, %v", byNumber, err)
	}
	for name, want := range map[string]string{
		"root": "is root", "0": "is root", "no-such-user": "there is no user", "nobody:nogroup": "there is no user", "-1": "there is no user",
	} {
		if u, err := Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", name, u, err)
		}
	}
}

func TestDoHasTheRightsOfTheUserAndGivesThemBack(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	own := privileged.Folder(t, u.uid, u.gid)
	closed := filepath.Join(own, "..", "closed")
	must(t, os.WriteFile(closed, nil, 0o640))
	var group sync.WaitGroup
	for i := range 50 { // at the same time, on many threads
		group.Go(func() {
			path := filepath.Join(own, strconv.Itoa(i))
			u.Do(func() {
				u.Do(func() {}) // within another one
				if _, err := os.ReadFile(closed); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("as the user, reading a file of root: %v", err)
				}
				must(t, os.WriteFile(path, nil, 0o600))
			})
			if _, err := os.ReadFile(closed); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			if uid := owner(t, path); uid != u.uid {
				t.Errorf("the file belongs to %d", uid)
			}
			must(t, os.WriteFile(path+"-root", nil, 0o600))
			if uid := owner(t, path+"-root"); uid != 0 {
				t.Errorf("the file of afterwards belongs to %d", uid)
			}
		})
	}
	group.Wait()
	func() {
		defer func() { _ = recover() }()
		u.Do(func() { panic("in f") })
	}()
	if _, err := os.ReadFile(closed); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// The groups of root must not count, nor those of the user be missing.
func TestDoHasTheGroupsOfTheUser(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	u.groups = append(slices.Clone(u.groups), 4242)
	top := filepath.Dir(privileged.Folder(t, u.uid, u.gid))
	for gid, want := range map[int]error{0: fs.ErrPermission, 4242: nil, 4243: fs.ErrPermission, u.gid: nil} {
		path := filepath.Join(top, strconv.Itoa(gid))
		must(t, os.WriteFile(path, nil, 0o640))
		must(t, os.Chown(path, 0, gid))
		var err error
		u.Do(func() { _, err = os.ReadFile(path) })
		if !errors.Is(err, want) {
			t.Errorf("a file of group %d: %v, want %v", gid, err, want)
		}
	}
}

func TestOutputRunsAsTheUserAndIsBounded(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	out, err := u.Output(exec.Command("sh", "-c", "id -u; grep -E '^(Cap(Eff|Prm|Inh|Bnd|Amb)|NoNewPrivs)' /proc/self/status"))
	const none = "0000000000000000"
	if text := string(out); err != nil || !strings.HasPrefix(text, strconv.Itoa(u.uid)+"\n") || strings.Count(text, none) != 5 || !strings.Contains(text, "NoNewPrivs:\t1") {
		t.Errorf("%q, %v", out, err)
	}
	for _, user := range []*User{nil, u} {
		out, err = user.Output(exec.Command("head", "-c", strconv.Itoa(maxOutput+1), "/dev/zero"))
		if err == nil || len(out) > maxOutput {
			t.Errorf("one byte too many: %d bytes, %v", len(out), err)
		}
		out, err = user.Output(exec.Command("head", "-c", strconv.Itoa(maxOutput), "/dev/zero"))
		if err != nil || len(out) != maxOutput {
			t.Errorf("as many as allowed: %d bytes, %v", len(out), err)
		}
	}
}

// hops is a program that is another process every few milliseconds, for ten minutes at most.
const hops = `
import os, time
end = time.time() + 600
while time.time() < end:
  if os.fork(): os._exit(0)
  os.setsid()
  open("number", "ab").write(b".")
`

// A search of all processes often misses such a program: what it was has ended, and what it is
// came after the search began. The processes that it was remain as zombies, as on a machine
// whose first process is busy: a search that looks at them again is too slow.
func TestAProgramThatIsAlwaysAnotherProcessEnds(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) // they become children of the test
	u, dir := nobody(t).For("instance"), t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	hopped := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "number"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for range 10 {
		cmd := exec.Command("python3", "-c", hops)
		cmd.Dir = dir
		startMarked(t, u, cmd)
		began := hopped()
		within.Until(t, "the program runs", func() bool { return hopped() >= began+5 })
		_ = cmd.Wait()
		must(t, u.EndAll())
		ended := hopped()
		for range 30 { // programs, during each of which it would become others
			must(t, exec.Command("true").Run())
		}
		if now := hopped(); now != ended {
			t.Fatalf("it lives on: it was %d processes, and %d later", ended, now)
		}
	}
}

// What looks like an end, but is none, must be killed or looked at again.
func TestOnlyAZombieWithoutOtherThreadsIsOver(t *testing.T) {
	for status, want := range map[string]bool{
		"State:\tZ (zombie)\nThreads:\t1": true,
		"State:\tZ (zombie)\nThreads:\t2": false,                                         // its first thread has ended
		"State:\tZ (zombie)\nThreads:\t0": false, "State:\tX (dead)\nThreads:\t0": false, // another thread may have taken its place
		"State:\tR (running)\nThreads:\t1": false, "": false,
	} {
		if got := isOver([]byte("Name:\tState:\\tZ\n" + status + "\n")); got != want {
			t.Errorf("%q: over is %t", status, got)
		}
	}
}

// Where /proc hides other users' processes, no search would find what the kernel leaves.
func TestNothingIsStartedThatTheExecutorCouldNotFind(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	for _, option := range []string{"hidepid=0", "hidepid=2,gid=4242"} {
		must(t, unix.Mount("proc", "/proc", "proc", 0, option)) // in this test's own namespace
		for _, bounding := range []string{"--bounding-set=-sys_ptrace", "--bounding-set=-audit_read"} {
			cmd := exec.Command("setpriv", "--inh-caps=-all", bounding, os.Args[0], "-test.run=^TestStartMarkedHelper$", "-test.v")
			cmd.Env = append(os.Environ(), "TEST_START_MARKED=1")
			out, err := cmd.CombinedOutput()
			must(t, err)
			started := strings.Contains(string(out), "started: <nil>")
			hidden := strings.Contains(string(out), "give the executor the capability SYS_PTRACE")
			if want := option == "hidepid=0" || bounding == "--bounding-set=-audit_read"; started != want || hidden == want {
				t.Errorf("%s, %s: %s", option, bounding, out)
			}
		}
		must(t, unix.Unmount("/proc", 0))
	}
}

// TestStartMarkedHelper prints the error of Start for the test above.
func TestStartMarkedHelper(t *testing.T) {
	if os.Getenv("TEST_START_MARKED") == "" {
		return
	}
	out, err := nobody(t).For("instance").Output(exec.Command("echo", "started:"))
	t.Logf("%s %v", strings.TrimSpace(string(out)), err)
}

func startMarked(t *testing.T, u *User, cmd *exec.Cmd) {
	t.Helper()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- u.Start(cmd)
	}()
	must(t, <-started)
}

// A forked process keeps its mark, whatever it does; another executor's has another mark.
func TestOnlyMarkedProcessesEnd(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	one, other := nobody(t).For("instance-1"), nobody(t).For("instance-2")
	start := func(u *User) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		startMarked(t, u, cmd)
		return cmd
	}
	mine, theirs, unmarked := start(one), start(other), start(nobody(t))
	must(t, one.EndAll())
	if err := mine.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the marked process ended with %v", err)
	}
	for _, cmd := range []*exec.Cmd{theirs, unmarked} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("another process ended: %v", err)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

// Linux shows such a process like one that has ended: its state is Z, and it has no command line.
func TestAProcessWhoseFirstThreadHasEndedEnds(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t).For("instance")
	cmd := exec.Command("python3", "-c", leaderless)
	startMarked(t, u, cmd)
	threads := func() int {
		all, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "task"))
		return len(all)
	}
	zombie := func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status"))
		must(t, err)
		return strings.Contains(string(status), "\nState:\tZ")
	}
	within.Until(t, "the first thread has ended", zombie)
	if n := threads(); n != 2 {
		t.Fatalf("it has %d threads, so this test shows nothing", n)
	}
	must(t, u.EndAll())
	if n := threads(); n > 1 { // the first one remains until cmd.Wait
		t.Errorf("%d of its threads live on", n-1)
		must(t, cmd.Process.Kill())
	}
	_ = cmd.Wait()
}

// leaderless is a program whose first thread ends, while another one sleeps.
const leaderless = `
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
`

func TestPathsInTheUsersReachAreRefused(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	own := privileged.Folder(t, u.uid, u.gid)
	top := filepath.Dir(own)
	make := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		path := filepath.Join(top, name)
		must(t, os.MkdirAll(path, 0o755))
		must(t, os.Chown(path, uid, gid))
		must(t, os.Chmod(path, mode))
	}
	make("private", 0o700, 0, 0)
	make("public", 0o777, 0, 0)
	make("sticky", 0o777|os.ModeSticky, 0, 0)
	make("sticky/roots", 0o755, 0, 0)
	make("sticky/users", 0o755, u.uid, u.gid)
	make("group", 0o775, 0, u.gid)
	make("other-group", 0o775, 0, 4243)
	make("folder/roots", 0o755, 0, 0) // root's, in the user's own folder
	make("somebody", 0o755, 4243, 4243)
	must(t, os.Symlink("folder", filepath.Join(top, "link")))
	must(t, os.Symlink(filepath.Join(top, "private"), filepath.Join(own, "link")))
	must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(top, "writable"), nil, 0o600))
	must(t, os.Chmod(filepath.Join(top, "writable"), 0o646))
	must(t, os.WriteFile(filepath.Join(top, "users"), nil, 0o600))
	must(t, os.Chown(filepath.Join(top, "users"), u.uid, u.gid))

	for path, safe := range map[string]bool{
		"": true, "new": true, "new/deeper": true, "private": true, "private/new": true, "file": true, "somebody": true,
		"sticky/roots": true, "sticky/roots/new": true, "other-group/new": true,
		"folder": false, "folder/new": false, "folder/roots": false, "folder/roots/new": false, "link/new": false,
		"public": false, "public/new": false, "sticky": false, "sticky/new": false, "sticky/users": false, "sticky/users/new": false,
		"group": false, "group/new": false, "writable": false, "users": false,
		"folder/link": true, // the link is in the user's reach, but what it leads to now is used from now on
	} {
		real, err := u.CheckOutOfReach(filepath.Join(top, path))
		if safe != (err == nil) || err != nil && !errors.Is(err, ErrInReach) {
			t.Errorf("%q: %q, %v", path, real, err)
		}
		if err == nil && strings.Contains(real, "link") {
			t.Errorf("%q is to be used as %q", path, real)
		}
		if err != nil && !strings.Contains(err.Error(), `the user could replace it by changing "`+top) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if path, err := (*User)(nil).CheckOutOfReach(own); path != own || err != nil {
		t.Errorf("without a user: %q, %v", path, err)
	}
}

// What code of the user leaves in a folder takes bounded time and memory to remove.
func TestRemovalsAreBoundedAndFollowNoLink(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	own := privileged.Folder(t, u.uid, u.gid)
	precious := filepath.Join(own, "precious")
	victim := filepath.Join(own, "victim")
	u.Do(func() {
		must(t, os.MkdirAll(filepath.Join(victim, "a", "b"), 0o700))
		must(t, os.WriteFile(precious, nil, 0o600))
		must(t, os.Symlink(own, filepath.Join(victim, "a", "link")))
	})
	must(t, u.RemoveAll(victim))
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, err := os.Lstat(precious); err != nil {
		t.Error(err)
	}
	u.Do(func() { must(t, os.MkdirAll(victim+strings.Repeat("/d", 1000), 0o700)) })
	must(t, u.RemoveAll(victim))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(own), "roots"), nil, 0o600))
	if err := u.RemoveAll(filepath.Join(filepath.Dir(own), "roots")); err == nil {
		t.Errorf("a file of root: %v", err)
	}
}
