package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// tailBytes of what the process wrote to its own stdout and stderr are kept to
// explain a death; ipykernel captures nearly everything else itself.
const tailBytes = 4 << 10

// process is the operating system's side of one life.
type process struct {
	pid    int
	record string        // path of its record, removed with it
	done   chan struct{} // closed when it is gone

	output *tail
	oom    oomCounter
	state  *os.ProcessState // set before done is closed
	oomed  bool
}

// startProcess starts ipykernel in a session of its own: Colab's stop button
// signals the executor's process group, and "Restart session" kills all of it.
//
// dir is the life's own folder, where connection lies. Python starts there: see scripts/start.py of shared/kernelpy.
func startProcess(cfg Config, dir string) (*process, error) {
	script := filepath.Join(dir, "start.py")
	if err := os.WriteFile(script, []byte(kernelpy.Script("start")), 0o600); err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(cfg.Python.Path, arguments(script, cfg.WorkDir, connectionFile(dir))...)
	cmd.Dir = dir
	// JPY_PARENT_PID makes ipykernel end itself when the executor is gone.
	cmd.Env = append(Environ(cfg.Environ, cfg.WorkDir), "JPY_PARENT_PID="+strconv.Itoa(os.Getpid()), contract.EnvOwner+"="+ownerOf(cfg.Instance))
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = ownSession()

	p := &process{
		record: recordPath(cfg.StateDir),
		done:   make(chan struct{}),
		output: &tail{},
		oom:    newOOMCounter(),
	}
	started := make(chan error)
	go p.hold(cmd, started)
	err = <-started
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	go p.output.follow(read, p.done)
	return p, nil
}

// hold starts the process and reaps it. It keeps its OS thread for the whole
// life: Linux sends Pdeathsig when the thread that forked ends, not the process.
func (p *process) hold(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	recorded := writeRecord(p.record, p.pid)
	started <- nil
	// Not cmd.Wait's pipes: a forked child would keep them open after the death.
	p.state, _ = cmd.Process.Wait()
	p.oomed = p.oom.rose()
	p.kill() // what the kernel started dies with it
	if recorded == nil {
		os.Remove(p.record)
	}
	close(p.done)
}

// arguments start a plain ipykernel also where Colab's system-wide IPython
// configuration names its own kernel class and extension (field report: a venv
// kernel dies at start with them).
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

// reason says why the process is gone, in words for its user.
func (p *process) reason() string {
	if p.state == nil {
		return "the process could not be waited for"
	}
	status, ok := p.state.Sys().(syscall.WaitStatus)
	switch {
	case p.oomed && ok && status.Signal() == syscall.SIGKILL:
		return "the machine ran out of memory and the system killed the kernel"
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "killed by SIGKILL: something killed it, or memory ran out"
	case ok && status.Signaled():
		return p.withOutput(fmt.Sprintf("crashed with %s", signalName(status.Signal())))
	}
	if p.state.ExitCode() == 0 { // its last words tell nothing of this
		return "exited, as code such as quit() or exit() had it do"
	}
	return p.withOutput(fmt.Sprintf("exited with code %d", p.state.ExitCode()))
}

func (p *process) withOutput(reason string) string {
	if last := p.output.lastLine(); last != "" && p.output.recent() {
		return reason + ": " + last
	}
	return reason
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
	at   time.Time // of the last piece
}

// lastWords is how shortly before its end a process must have said something
// for that to tell about the end.
const lastWords = 2 * time.Second

func (t *tail) recent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.at) < lastWords
}

// follow reads r until its end, or shortly after done: a child that outlives
// the kernel may hold the pipe's other end for ever.
func (t *tail) follow(r *os.File, done <-chan struct{}) {
	defer r.Close()
	go func() {
		<-done
		r.Close()
	}()
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
	t.data = append(t.data, b...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
}

// maxLine is the most runes of a line in a reason.
const maxLine = 300

// lastLine is Python's own summary when it ends with a traceback.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.data))
	line := []rune(strings.ToValidUTF8(text[strings.LastIndexByte(text, '\n')+1:], "�"))
	return string(line[:min(len(line), maxLine)])
}
