package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/executor/account"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// process is the operating system's side of a kernel.
type process struct {
	pid    int
	record string        // path of its record, which is removed with it
	done   chan struct{} // closed when it has ended

	output      *tail
	oom         oomCounter
	user        *account.User
	left        error            // why something that it started may still run; set before done is closed
	state       *os.ProcessState // set before done is closed
	outOfMemory bool
}

// startProcess starts ipykernel in its own session, because Colab's stop button
// signals the executor's process group and "Restart session" kills it. dir holds the
// connection file and the script start.py of shared/kernelpy. Python starts there.
func startProcess(cfg Config, dir string) (*process, error) {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(cfg.Python.Path, arguments(startScript(dir), cfg.WorkDir, connectionFile(dir))...)
	cmd.Dir = dir
	// JPY_PARENT_PID makes ipykernel end itself when the executor is gone.
	cmd.Env = append(Environ(cfg.Environ, cfg.WorkDir), "JPY_PARENT_PID="+strconv.Itoa(os.Getpid()),
		contract.EnvOwner+"="+ownerOf(cfg.Place), contract.EnvTemp+"="+temp)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = account.OwnSession() // an orphan would run code that is not recorded, and keep the GPU's memory

	p := &process{
		record: recordPath(cfg.StateDir),
		done:   make(chan struct{}),
		output: newTail(),
		oom:    newOOMCounter(),
		user:   cfg.User,
	}
	started := make(chan error)
	go p.run(cmd, read, started)
	err = <-started
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end. It keeps its OS thread until then:
// Linux sends Pdeathsig when the thread that forked ends, not when the process does.
func (p *process) run(cmd *exec.Cmd, output *os.File, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := p.user.Start(cmd); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	recorded := writeRecord(p.record, p.pid)
	started <- nil
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		p.output.follow(output)
	}()
	// Not cmd.Wait: a forked child could keep the pipe open after the end.
	p.state, _ = cmd.Process.Wait()
	p.outOfMemory = p.oom.rose()
	p.kill() // with all that it started in its process group
	p.left = p.user.EndKernel()
	if recorded == nil {
		os.Remove(p.record)
	}
	_ = output.SetReadDeadline(time.Now().Add(lastRead))
	<-followed
	close(p.done)
}

// arguments start a plain ipykernel even if Colab's system-wide IPython configuration
// names its own kernel class and extension, with which a kernel in a virtual environment
// dies at its start.
func arguments(script, workDir, connectionFile string) []string {
	return []string{
		script, workDir, "-f", connectionFile,
		"--IPKernelApp.kernel_class=ipykernel.ipkernel.IPythonKernel",
		"--InteractiveShellApp.extensions=[]",
		"--HistoryManager.enabled=False",
	}
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) error {
	if p.exited() {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-p.pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

// reason describes to the user why the process ended.
func (p *process) reason() string {
	if p.state == nil {
		return "the executor could not learn how the process ended"
	}
	status, ok := p.state.Sys().(syscall.WaitStatus)
	switch {
	case p.outOfMemory && ok && status.Signal() == syscall.SIGKILL:
		return "the machine ran out of memory and the system killed the kernel"
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "it was killed by SIGKILL: by another program, or because memory ran out"
	case ok && status.Signaled():
		return p.withOutput(fmt.Sprintf("it crashed with %s", unix.SignalName(status.Signal())))
	}
	if p.state.ExitCode() == 0 { // its last output does not explain this
		return "it exited normally, as after quit() or exit()"
	}
	return p.withOutput(fmt.Sprintf("it exited with code %d", p.state.ExitCode()))
}

func (p *process) withOutput(reason string) string {
	if last := p.output.lastLine(); last != "" && p.output.recent() {
		return reason + ": " + last
	}
	return reason
}

// withheld are variables that the kernel's code must not see: secrets of the platform,
// addresses of agents that hold keys, and references to another notebook.
var withheld = []string{
	"NGROK_API_KEY", "KAGGLE_USER_SECRETS_TOKEN", "TUNNEL_TOKEN",
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO",
	"GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS", // of key rings
	"JPY_PARENT_PID", "JPY_SESSION_NAME",
}

// withheldPrefixes begin the names of the executor's own secrets. The name of a runtime
// and _FILE may follow.
var withheldPrefixes = []string{"EXECUTOR_SECRET", "NGROK_AUTHTOKEN"}

// Withheld reports whether the kernel's code must not see an environment variable.
func Withheld(name string) bool {
	return slices.Contains(withheld, name) ||
		slices.ContainsFunc(withheldPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Environ returns the environment of the kernel and of all scripts that its interpreter
// runs: base without what is withheld.
func Environ(base []string, workDir string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		// A backend inherited from a notebook may exist only in its kernel.
		inherited := name == "MPLBACKEND" && strings.HasPrefix(value, "module://")
		return inherited || Withheld(name)
	})
	return outsideOf(env, workDir)
}

const (
	pythonPath = "PYTHONPATH"
	// givenPath holds the original PYTHONPATH if outsideOf changed it. A kernel restores the
	// original before it runs the user's code.
	givenPath = "COLAB_RELAY_PYTHONPATH"
)

// outsideOf returns base for a Python that starts outside workDir. Relative entries of
// PYTHONPATH become absolute, based on workDir, and workDir itself is removed: entries of
// PYTHONPATH, such as the empty one of `PYTHONPATH=$PYTHONPATH:/more`, come before the
// standard library.
func outsideOf(base []string, workDir string) []string {
	environ := slices.Clone(base)
	for i, entry := range environ {
		given, found := strings.CutPrefix(entry, pythonPath+"=")
		if !found {
			continue
		}
		if path := outside(given, workDir); path != given {
			environ[i] = pythonPath + "=" + path
			return append(environ, givenPath+"="+given)
		}
	}
	return environ
}

// outside returns a PYTHONPATH without workDir, with absolute entries.
func outside(path, workDir string) string {
	var kept []string
	for entry := range strings.SplitSeq(path, string(os.PathListSeparator)) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(workDir, entry)
		}
		if !sameFolder(entry, workDir) {
			kept = append(kept, entry)
		}
	}
	return strings.Join(kept, string(os.PathListSeparator))
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

const (
	// tailBytes is how much of a process's stdout and stderr is kept, to explain its
	// end. ipykernel captures nearly everything that the code prints.
	tailBytes = 4 << 10
	// lastWords is how shortly before the end a process must have written something
	// for that to explain the end.
	lastWords = 2 * time.Second
	// lastRead is how long a process's output is read after its end.
	lastRead = 100 * time.Millisecond
	// maxLine bounds a line in a reason, in runes.
	maxLine = 300
)

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data bounded.Tail
	at   time.Time // of the last piece
}

func newTail() *tail { return &tail{data: bounded.Tail{Max: tailBytes}} }

// follow reads r until its end or, because a child that outlives the kernel may keep the
// pipe open, until its deadline.
func (t *tail) follow(r *os.File) {
	defer r.Close()
	buf := make([]byte, tailBytes)
	for {
		n, err := r.Read(buf)
		t.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) > 0 {
		t.at = time.Now()
	}
	t.data.Write(b)
}

// forget drops everything: what a kernel printed while it started, such as warnings, does not
// explain the end of one that was ready.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = bounded.Tail{Max: tailBytes}
}

func (t *tail) recent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.at) < lastWords
}

// lastLine returns the last line. After a traceback it is Python's own summary.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(t.data.String())
	line := []rune(strings.ToValidUTF8(text[strings.LastIndexByte(text, '\n')+1:], "�"))
	return string(line[:min(len(line), maxLine)])
}

// oomSources are the files that count processes killed because memory ran out: in the
// cgroup (v2) and on the machine.
var oomSources = []string{"/sys/fs/cgroup/memory.events", "/proc/vmstat"}

// oomCounter holds the counts of oomSources at its start.
type oomCounter map[string]uint64

func newOOMCounter() oomCounter {
	c := oomCounter{}
	for _, path := range oomSources {
		if n, ok := oomKills(path); ok {
			c[path] = n
		}
	}
	return c
}

// rose reports whether the system has killed a process because memory ran out.
func (c oomCounter) rose() bool {
	for path, before := range c {
		if now, ok := oomKills(path); ok && now > before {
			return true
		}
	}
	return false
}

func oomKills(path string) (uint64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "oom_kill "); found {
			n, err := strconv.ParseUint(rest, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// findTimeout bounds the query of one interpreter: a cold disk takes seconds.
const findTimeout = 60 * time.Second

// ErrNoPython means that no interpreter with ipykernel was found.
var ErrNoPython = errors.New("no Python with ipykernel")

// Python is an interpreter that can run a kernel.
type Python struct {
	Path      string `json:"executable"` // absolute
	Version   string `json:"version"`
	IPyKernel string `json:"ipykernel"`
	IPython   string `json:"ipython"`
}

// Find returns the first interpreter that has ipykernel: python or, if that is empty, the
// one of the virtual environment that this program is installed in, python3 on PATH or
// /usr/bin/python3. The interpreters run with the rights of a user. environ is from Environ.
// The error is ErrNoPython and says what each interpreter lacks.
func Find(ctx context.Context, as *account.User, python string, environ []string) (Python, error) {
	candidates := []string{"python3", "/usr/bin/python3"}
	if own, err := os.Executable(); err == nil {
		candidates = append(inEnvironment(own), candidates...)
	}
	if python != "" {
		candidates = []string{python}
	}
	var faults []string
	for _, candidate := range candidates {
		found, err := query(ctx, as, candidate, environ)
		switch {
		case err == nil:
			return found, nil
		case python != "" && errors.Is(err, fs.ErrNotExist):
			return Python{}, fmt.Errorf("%w: --python %s: no such file", ErrNoPython, python)
		}
		faults = append(faults, fmt.Sprintf("%s: %s", candidate, err))
	}
	return Python{}, fmt.Errorf("%w (%s): install it with `python3 -m pip install ipykernel`, or name another interpreter with --python. Where the system allows no packages, as on Debian and Ubuntu, make an environment with `python3 -m venv ~/colab-relay-python && ~/colab-relay-python/bin/pip install ipykernel`, then add --python ~/colab-relay-python/bin/python",
		ErrNoPython, strings.Join(faults, "; "))
}

// inEnvironment returns the interpreter of the virtual environment that contains a program,
// if one does: pipx and uv install packages there, without that folder on PATH.
func inEnvironment(program string) []string {
	bin := filepath.Dir(program)
	if _, err := os.Stat(filepath.Join(bin, "..", "pyvenv.cfg")); err != nil {
		return nil
	}
	return []string{filepath.Join(bin, "python3")}
}

func query(ctx context.Context, as *account.User, candidate string, environ []string) (Python, error) {
	path, err := exec.LookPath(candidate)
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another folder
	}
	if err != nil {
		return Python{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	out, err := as.RunPython(ctx, path, kernelpy.Script("find"), environ)
	if err != nil {
		return Python{}, explain(as, err)
	}
	var found Python
	if err := json.Unmarshal(out, &found); err != nil {
		return Python{}, fmt.Errorf("decoding its answer: %w", err)
	}
	found.Path = path
	return found, nil
}

// explain replaces the error of a script that failed by the last line that it wrote.
func explain(as *account.User, err error) error {
	if as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("user %q cannot run it: permission denied for this file or a folder above it", as.Name)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	last := newTail()
	last.add(exit.Stderr)
	if line := last.lastLine(); line != "" {
		return errors.New(line)
	}
	return err
}
