package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"colabrelay/shared/contract"
	"colabrelay/shared/privileged"
	"colabrelay/shared/tier"
)

// One executor and one kernel for all attacks, because both take seconds to start. The last
// ones end the kernel.
func TestTheKernelOfAnotherUser(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	x := newSandbox(t, withEnv("XDG_RUNTIME_DIR=/run/user/0", "SUDO_USER=somebody", "MAIL=/var/mail/root", "KEPT=kept"))
	secret := x.private("secret/key", longSecret)
	x.cmd.Env = append(x.cmd.Env, envSecretFile+"="+secret)
	inherited, err := os.Open(secret)
	must(t, err)
	defer inherited.Close()
	x.cmd.ExtraFiles = []*os.File{inherited}
	terminal := x.giveTerminal()
	keepKey(t)
	x.run()
	x.ready()
	x.part("has its own surroundings", x.surroundings)
	x.part("can't reach the executor", func() { x.cannotReach(secret, terminal) })
	x.part("has no more rights to files through the executor", x.filesThroughTheExecutor)
	x.part("leaves nothing that harms the next one", x.leaves)
}

// part is a subtest.
func (x *sandbox) part(name string, f func()) {
	whole := x.t
	defer func() { x.t = whole }()
	whole.Run(name, func(t *testing.T) {
		x.t = t
		f()
	})
}

func (x *sandbox) surroundings() {
	for expression, want := range map[string]string{
		"sorted(set(os.getresuid()))":                                                           fmt.Sprintf("[%d]", x.uid),
		"0 in os.getgroups() or 0 in os.getresgid()":                                            "False",
		"[os.environ.get(name) for name in ('USER', 'LOGNAME', 'KEPT')]":                        fmt.Sprintf("['%[1]s', '%[1]s', 'kept']", otherUser),
		"os.path.isdir(os.environ['HOME']) and os.environ['HOME'] != " + pyString(x.home()):     "True",
		"[v for v in os.environ if v.startswith(('XDG_', 'SUDO_', 'MAIL', 'EXECUTOR_SECRET'))]": "[]",
		"os.getcwd() == " + pyString(x.dir):                                                     "True",
		"open('made', 'w').close() or os.stat('made').st_uid":                                   fmt.Sprint(x.uid),
		"os.stat(" + kernelFolder + ").st_uid":                                                  fmt.Sprint(x.uid),
	} {
		if got := x.value(expression); got != want {
			x.t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
	if !strings.Contains(x.out.String(), "user     "+otherUser+" runs the kernel") {
		x.t.Errorf("the console does not name the user:\n%s", x.out)
	}
}

// kernelFolder is an expression for the folder of the kernel's connection file.
const kernelFolder = "os.path.dirname(__import__('ipykernel').get_connection_file())"

func (x *sandbox) home() string {
	for _, entry := range x.cmd.Env {
		if home, found := strings.CutPrefix(entry, "HOME="); found {
			return home
		}
	}
	return ""
}

// cannotReach runs the attacks on the executor's process and its files. The executor has a
// terminal, a keyring and a descriptor of a private file from the one who started it.
func (x *sandbox) cannotReach(secret, terminal string) {
	program := x.path("id")
	id, err := os.ReadFile("/usr/bin/id")
	must(x.t, err)
	must(x.t, os.WriteFile(program, id, 0o755))
	must(x.t, os.Chmod(program, 0o755|os.ModeSetuid))
	pid := x.cmd.Process.Pid
	targets := []string{x.top, x.state, x.state + "/executor.log", x.state + "/instance.json", x.state + "/kernel.json", x.file, secret, filepath.Dir(secret)}
	for name, test := range map[string]struct{ call, want string }{
		"memory":      {fmt.Sprintf("memory(%d)", pid), "[]"},
		"signals":     {fmt.Sprintf("signals(%d)", pid), "[]"},
		"files":       {fmt.Sprintf("files(%s, %s)", pyList(targets), pyString(x.dir)), fmt.Sprintf("['list %s']", x.top)},
		"rights":      {fmt.Sprintf("rights(%s, %s)", pyString(program), pyString(secret)), "[]"},
		"descriptors": {fmt.Sprintf("descriptors(%s)", pyString(x.top+"/")), "[]"},
		"keyring":     {fmt.Sprintf("keyring(b%s)", pyString(keyName)[1:]), "[]"},
		"terminal":    {fmt.Sprintf("terminal(%s)", pyString(terminal)), "[]"},
	} {
		if got := x.attack(test.call); got != test.want {
			x.t.Errorf("%s: %s worked, want %s", name, got, test.want)
		}
	}
	if code, _ := get(x.url + contract.PathHealth); code != http.StatusOK {
		x.t.Errorf("afterwards /health answers %d", code)
	}
}

// filesThroughTheExecutor are requests of a relay for what the kernel's user can't reach
// itself, through its links too.
func (x *sandbox) filesThroughTheExecutor() {
	private := filepath.Join(x.dir, "private")
	must(x.t, os.Mkdir(private, 0o700))
	must(x.t, os.WriteFile(filepath.Join(private, "key"), []byte(longSecret), 0o644))
	x.value("os.symlink('private/key', 'link')")
	closed := x.private("closed", longSecret)
	must(x.t, os.Link(closed, filepath.Join(x.dir, "second-name"))) // as where hard links are not protected
	x.forbidden("GET", contract.PathFiles+"?path=private", nil)
	for _, path := range []string{"private/key", "link", "second-name"} {
		x.forbidden("GET", contract.PathStat+"?digest=1&path="+path, nil)
		x.forbidden("GET", contract.PathContent+"?offset=0&length=9&etag=x&path="+path, nil)
	}
	for _, start := range []contract.UploadStart{{Path: "private/new", SizeBytes: 1, Version: "1"}, {Path: "private/folder/"}, {Path: "private/key", SizeBytes: 1, Version: "1", Overwrite: true}} {
		x.forbidden("POST", contract.PathUploads, start)
	}
	call[contract.Upload](x.program, "POST", contract.PathUploads, contract.UploadStart{Path: "made-by/upload/"})
	for _, name := range []string{"made-by", "made-by/upload"} {
		if info, err := os.Stat(filepath.Join(x.dir, name)); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != x.uid {
			x.t.Errorf("%s does not belong to the kernel's user: %v", name, err)
		}
	}
}

func (x *sandbox) forbidden(method, path string, in any) {
	x.t.Helper()
	if code := x.refused(method, path, in); code != contract.CodeForbiddenPath {
		x.t.Errorf("%s %s %v is answered with %q", method, path, in, code)
	}
}

// leaves restarts the kernel after it has left what could lead the executor astray: links
// to a socket that only root may use in place of its own, links to precious files and
// thousands of folders in each other in the folder that the executor removes, and processes.
func (x *sandbox) leaves() {
	precious, mark := x.private("precious/file", "content"), "left-by-"+x.state
	folder := x.value(kernelFolder)
	owner := strings.Split(filepath.Base(strings.Trim(folder, "'")), "-")[2]
	x.t.Cleanup(func() { removeGlob(x.t, filepath.Join(os.TempDir(), "colab-relay-"+owner+"-*")) })
	x.attack(fmt.Sprintf("remains(%s, '%s', %s)", folder, owner, pyString(filepath.Dir(precious))))
	x.attack("stay('" + mark + "')")
	x.until("the processes run", func() bool { return len(x.processes(mark)) >= 9 })
	connected := x.leadSocketsTo(folder)
	x.restart()
	if left := x.processes(mark); len(left) > 0 {
		x.t.Errorf("processes %v outlive the kernel", left)
	}
	if content, err := os.ReadFile(precious); string(content) != "content" {
		x.t.Errorf("the precious file holds %q, %v", content, err)
	}
	if n := connected(); n > 0 {
		x.t.Errorf("the executor connected %d times to a socket that the kernel's user must not use", n)
	}
	if got := x.value("1 + 1"); got != "2" {
		x.t.Errorf("in the next kernel 1 + 1 is %s", got)
	}
}

func removeGlob(t *testing.T, pattern string) {
	paths, err := filepath.Glob(pattern)
	must(t, err)
	for _, path := range paths {
		must(t, os.RemoveAll(path))
	}
}

// leadSocketsTo replaces the kernel's sockets by links to one that only root may use, and
// breaks the executor's connections to them. It returns when the executor has noticed. The
// function that it returns counts the connections to that socket.
func (x *sandbox) leadSocketsTo(folder string) func() int {
	x.t.Helper()
	victim := x.path("victim")
	listener, err := net.Listen("unix", victim)
	must(x.t, err)
	must(x.t, os.Chmod(victim, 0o600))
	accepted := make(chan int)
	go func() {
		n := 0
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			conn.Close()
			n++
		}
		accepted <- n
	}()
	x.submit("sockets", x.code("sockets("+folder+", "+pyString(victim)+")"), 0)
	x.until("the loss is logged", func() bool {
		log, _ := os.ReadFile(filepath.Join(x.state, "executor.log"))
		return strings.Contains(string(log), "connection to the kernel lost")
	})
	return func() int {
		listener.Close()
		return <-accepted
	}
}

// A kernel that does not end with a killed executor, and what it has started, end with the
// start of the next executor.
func TestWhatAnotherUsersKernelLeavesEndsWithTheNextExecutor(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	x := startSandbox(t)
	x.attack("stay('left-by-" + x.state + "')")
	x.until("the processes run", func() bool { return len(x.processes("left-by-"+x.state)) >= 9 })
	must(t, x.cmd.Process.Kill())
	<-x.ended
	// The kernel may notice within a second that the executor is gone; what it started does not.
	if len(x.processes(x.dir)) == 0 && len(x.processes("left-by-"+x.state)) == 0 {
		t.Error("all ended with the executor, so this test shows nothing about it")
	}
	next := newProgram(t, in(x.dir))
	next.file, next.cmd.Args = x.file, append(next.cmd.Args, x.cmd.Args[len(next.cmd.Args):]...)
	must(t, os.Remove(x.file))
	next.run()
	next.ready()
	if left := x.processes("left-by-" + x.state); len(left) > 0 {
		t.Errorf("processes %v of the killed executor's kernel are left", left)
	}
	if kernels := x.processes(x.dir); len(kernels) != 1 {
		t.Errorf("kernels %v are running", kernels)
	}
}

func pyList(texts []string) string {
	var all []string
	for _, text := range texts {
		all = append(all, pyString(text))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

const keyName = "colab-relay-test"

// keepKey gives this process, and what it starts, a session keyring with a key.
func keepKey(t *testing.T) {
	t.Helper()
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	must(t, err)
	_, err = unix.AddKey("user", keyName, []byte("content"), unix.KEY_SPEC_SESSION_KEYRING)
	must(t, err)
}

// giveTerminal makes a terminal the executor's own, and returns its path.
func (x *sandbox) giveTerminal() string {
	x.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(x.t, err)
	x.t.Cleanup(func() { master.Close() })
	must(x.t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	must(x.t, err)
	path := fmt.Sprintf("/dev/pts/%d", number)
	slave, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	must(x.t, err)
	x.t.Cleanup(func() { slave.Close() })
	x.cmd.Stdin = slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	return path
}

// Each setting that would put the executor in the reach of the kernel's user is refused,
// with what to do.
func TestSettingsInTheReachOfTheKernelsUserAreRefused(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	const nobody = 65534
	work := privileged.Folder(t, nobody, nobody)
	top := filepath.Dir(work)
	file := func(path string, mode os.FileMode) string {
		t.Helper()
		must(t, os.WriteFile(path, []byte(longSecret), mode))
		return path
	}
	closed, readable, theirs := file(filepath.Join(top, "closed"), 0o600), file(filepath.Join(top, "readable"), 0o644), file(filepath.Join(work, "theirs"), 0o600)
	program := file(filepath.Join(work, "cloudflared"), 0o755)
	must(t, os.Mkdir(filepath.Join(top, "roots"), 0o755))
	for name, test := range map[string]struct {
		args   []string
		env    []string
		temp   string
		path   string
		faults []string
	}{
		"safe":            {args: []string{"--state-dir", top + "/state", "--ready-file", top + "/ready.json"}, env: []string{envSecretFile, closed}},
		"state":           {args: []string{"--state-dir", work + "/state"}, faults: []string{`--user nobody: --state-dir "` + work + `/state": the user could replace it by changing "` + work + `": choose a path that only root can change`}},
		"state in /tmp":   {args: []string{"--state-dir", "/tmp/colab-relay-no-such-folder"}, faults: []string{`by changing "/tmp"`}},
		"ready file":      {args: []string{"--ready-file", work + "/ready.json"}, faults: []string{`--ready-file "` + work + `": the user could replace it`}},
		"readable secret": {env: []string{envSecretFile, readable}, faults: []string{`the user can read EXECUTOR_SECRET_FILE "` + readable + `": let only root read it, with chmod 600`}},
		"movable secret":  {env: []string{envSecretFile, theirs}, faults: []string{`EXECUTOR_SECRET_FILE "` + theirs + `": the user could replace it`}},
		"workdir":         {args: []string{"--workdir", top + "/roots"}, faults: []string{`--user nobody: the user can't write to --workdir "` + top + `/roots": open `, `permission denied: change its owner, or choose another folder`}},
		"temp folder":     {temp: top + "/roots", faults: []string{`can't write to the temp folder "` + top + `/roots"`, "set TMPDIR to a folder such as /tmp"}},
		"cloudflared":     {args: []string{"--tunnel", "cloudflared"}, path: work, faults: []string{`the program "` + program + `": the user could replace it`}},
		"audit log":       {args: []string{"--state-dir", top + "/state", "--audit", "/var/tmp/audit.log"}, faults: []string{`--user nobody: --audit "/var/tmp/audit.log": the user could replace it by changing "/var/tmp"`}},
		"SSH key":         {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-key", readable}, faults: []string{`the user can read --ssh-key "` + readable + `"`}},
		"known hosts":     {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-known-hosts", theirs}, faults: []string{`--ssh-known-hosts "` + theirs + `": the user could replace it`}},
		"two faults":      {args: []string{"--state-dir", work + "/state", "--ready-file", work + "/ready.json"}, faults: []string{"--state-dir", "\n--user nobody: --ready-file"}},
		"root":            {args: []string{"--user", "root"}, faults: []string{`--user root: user "root" is root: name a user without rights`}},
		"nobody there":    {args: []string{"--user", "no-such-user"}, faults: []string{`--user no-such-user: there is no user "no-such-user" on this machine: create one`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", test.temp)
			if test.path != "" {
				t.Setenv("PATH", test.path)
			}
			args := append([]string{"--workdir", work, "--user", "nobody"}, test.args...)
			c, err := parseConfig(args, env(test.env...), io.Discard)
			if (err != nil) != (len(test.faults) > 0) {
				t.Errorf("%v", err)
			}
			for _, fault := range test.faults {
				if err != nil && !strings.Contains(err.Error(), fault) {
					t.Errorf("%q does not contain %q", err, fault)
				}
			}
			if err == nil && (c.stateDir != top+"/state" || c.user.UID() != nobody) {
				t.Errorf("the state folder is %q, the user %v", c.stateDir, c.user)
			}
		})
	}
	c, err := parseConfig([]string{"--workdir", work, "--user", "nobody"}, env(), io.Discard)
	if err != nil || c.stateDir != rootStateDir {
		t.Errorf("by default the state folder is %q, %v", c.stateDir, err)
	}
}
