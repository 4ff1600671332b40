package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/privileged"
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
