package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
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
	cmd.SysProcAttr = ownSession()

	p := &process{
		record: recordPath(cfg.StateDir),
		done:   make(chan struct{}),
		output: &tail{},
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
		return p.withOutput(fmt.Sprintf("it crashed with %s", signalName(status.Signal())))
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
