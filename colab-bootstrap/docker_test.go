package bootstrap

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// container is a folder in which the test does the Dockerfile's steps the way an engine
// would. Absolute paths lead into that folder.
type container struct {
	t          *testing.T
	root       string
	context    string // the folder COPY copies from
	env        []string
	workdir    string
	user       string
	health     []string
	entrypoint []string
}

// build does the Dockerfile's steps. A step that it does not know fails the test, so
// that no new step is untested.
func build(t *testing.T, context string) *container {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	c := &container{t: t, context: context}
	c.image()
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		step, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.ReplaceAll(rest, "${TARGETARCH}", runtime.GOARCH)
		switch step {
		case "", "#":
		case "FROM":
			if rest != "python:3.12-slim" {
				t.Errorf("the base is %q", rest)
			}
		case "ARG", "VOLUME": // do not change files
		case "ENV":
			c.env = append(c.env, c.below(rest))
		case "COPY":
			c.copy(strings.Fields(rest))
		case "RUN":
			c.run(rest)
		case "USER":
			c.user = rest
		case "WORKDIR":
			c.workdir = c.below(rest)
		case "HEALTHCHECK":
			c.health = c.list(rest[strings.Index(rest, "["):])
		case "ENTRYPOINT":
			c.entrypoint = c.list(rest)
		default:
			t.Fatalf("the test does not know the step %q", step)
		}
	}
	return c
}

var absolute = regexp.MustCompile(`(^|[ =])/`)

// below turns absolute paths into paths below the container's folder.
func (c *container) below(text string) string {
	return absolute.ReplaceAllString(text, "${1}"+c.root+"/")
}

func (c *container) list(text string) (words []string) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return words
}

// image makes what the steps need from the base image: a Python with pip, here a virtual
// environment, and useradd, here one that only makes the home folder.
func (c *container) image() {
	c.t.Helper()
	var err error
	c.root, err = os.MkdirTemp("", "container-") // other users can't read t.TempDir()
	must(c.t, err)
	c.t.Cleanup(func() { os.RemoveAll(c.root) })
	must(c.t, os.Chmod(c.root, 0o755))
	python := filepath.Join(c.root, "python")
	c.env = append(c.env, "PATH="+c.root+"/usr/local/bin:"+python+"/bin:/usr/sbin:/usr/bin:/bin")
	c.program("useradd", `for name; do :; done; mkdir -p "`+c.root+`/home/$name" && chown 1000:1000 "`+c.root+`/home/$name"`)
	if os.Getuid() != 0 {
		c.program("chown", ":")
	}
	venv := []string{"-m", "venv", "--without-pip", python}
	if _, err := os.Stat(filepath.Join(stacks.Root(), ".python", "new.left-out")); err == nil {
		c.t.Log("pip reaches no index: the system's ipykernel replaces the step that installs it")
		venv = append(venv, "--system-site-packages")
		c.program("pip", ":")
	} else {
		// Images omit the cache to stay small. Here, cache and uncompiled files save time.
		c.program("pip", `[ "$2" = --no-cache-dir ] || exit 2; shift 2; `+stacks.Old(c.t).Python+` -m pip --python "`+python+`/bin/python" install --no-compile "$@"`)
	}
	if out, err := exec.Command(c.python(), venv...).CombinedOutput(); err != nil {
		c.t.Fatalf("venv: %v\n%s", err, out)
	}
}

func (c *container) program(name, script string) {
	c.t.Helper()
	path := filepath.Join(c.root, "usr", "local", "bin", name)
	write(c.t, path, "#!/bin/sh\n"+script+"\n")
	must(c.t, os.Chmod(path, 0o755))
}

// python returns the first Python that a user without rights can run. Root may have
// another one below /root first on PATH.
func (c *container) python() string {
	c.t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		must(c.t, err)
		cmd := exec.Command(real, "-c", "import venv")
		cmd.Dir, cmd.SysProcAttr = "/", withoutRights(1000, 1000)
		if cmd.Run() == nil {
			return real
		}
	}
	c.t.Fatal("no Python that other users than root can run: install the package python3-venv")
	return ""
}

// withoutRights starts a process as another user, if the test may do so.
func withoutRights(uid, gid uint32) *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *container) copy(words []string) {
	c.t.Helper()
	mode := os.FileMode(0o644)
	if words[0] == "--chmod=0755" {
		mode, words = 0o755, words[1:]
	}
	content, err := os.ReadFile(filepath.Join(c.context, words[0]))
	must(c.t, err)
	to := c.below(words[1])
	must(c.t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(c.t, os.WriteFile(to, content, mode))
	must(c.t, os.Chmod(to, mode))
}

func (c *container) run(script string) {
	c.t.Helper()
	cmd := exec.Command("sh", "-ec", c.below(script))
	cmd.Env = append(os.Environ(), c.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("RUN %s: %v\n%s", script, err, out)
	}
}

// command returns a command in the container that runs as its user, if the test may do
// so.
func (c *container) command(words []string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command("env", append([]string{"-C", c.workdir}, words...)...)
	cmd.Env = append([]string{"LANG=C.UTF-8"}, c.env...)
	var uid, gid uint32
	if n, err := fmt.Sscanf(c.user, "%d:%d", &uid, &gid); n != 2 || uid == 0 {
		c.t.Fatalf("USER %q: want numbers and not root (%v)", c.user, err)
	}
	cmd.SysProcAttr = withoutRights(uid, gid)
	return cmd
}

func TestTheDockerfilesStepsMakeAnExecutorThatRunsWithoutRights(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	_, relay := realRelease(t)
	context := t.TempDir()
	must(t, os.Symlink(made.dir, filepath.Join(context, "dist")))
	must(t, os.Mkdir(filepath.Join(context, "colab-bootstrap"), 0o755))
	pins, err := filepath.Abs("requirements.txt")
	must(t, err)
	must(t, os.Symlink(pins, filepath.Join(context, "colab-bootstrap", "requirements.txt")))
	c := build(t, context)

	port := freePort(t)
	health := func() bool {
		words := append([]string(nil), c.health...)
		words[len(words)-1] = strings.Replace(words[len(words)-1], "127.0.0.1:8000", "127.0.0.1:"+port, 1)
		return c.command(words).Run() == nil
	}
	if health() {
		t.Fatal("the health check succeeds before the executor runs")
	}
	executor := c.command(append(c.entrypoint, "--listen", "127.0.0.1:"+port))
	out := &harness.Output{}
	executor.Stdout, executor.Stderr = out, out
	must(t, executor.Start())
	p := &page{Shown: out, Ended: make(chan struct{})}
	go func() {
		_ = executor.Wait()
		close(p.Ended)
	}()
	t.Cleanup(func() {
		_ = executor.Process.Signal(syscall.SIGTERM)
		<-p.Ended
		if t.Failed() {
			t.Logf("the container's executor printed:\n%s", out)
		}
	})
	p.awaitUp(t)
	within.Until(t, "the health check succeeds", health)

	kernel, parent := pids(t, paired(t, relay, p.pairing()))
	if parent != executor.Process.Pid {
		t.Errorf("the kernel's parent is %d, the executor is %d", parent, executor.Process.Pid)
	}
	for name, pid := range map[string]int{"executor": parent, "kernel": kernel} {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		if strings.Contains(string(status), "\nUid:\t0\t") {
			t.Errorf("the %s runs as root", name)
		}
	}
	if !strings.Contains(out.String(), "state    "+c.workdir+"/.colab-relay") {
		t.Errorf("the state is not on the volume %s", c.workdir)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	must(t, err)
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	return port
}
