package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"colabrelay/executor/jupyter"
)

// Kernel is one kernel process from start to death.
type Kernel struct {
	ID      string // a new one for each life
	Client  *jupyter.Client
	Info    jupyter.KernelInfo
	Started time.Time

	proc *process
	dir  string

	mu         sync.Mutex
	asked      string    // why we ended it, empty when it died by itself
	restarting time.Time // when a restart began to end it
}

// startKernel starts a process and returns once it answers, or ends it again.
func startKernel(ctx context.Context, cfg Config) (*Kernel, error) {
	dir, err := runtimeDir(ownerOf(cfg.Instance))
	if err != nil {
		return nil, fmt.Errorf("making the kernel's folder: %w", err)
	}
	conn, err := connection(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	l := &Kernel{ID: uuid.NewString(), Started: time.Now(), dir: dir}
	l.proc, err = startProcess(cfg, dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("starting %q: %w", cfg.Python.Path, err)
	}
	if err := l.connect(ctx, cfg, conn); err != nil {
		l.proc.kill()
		<-l.proc.done
		l.close()
		return nil, err
	}
	return l, nil
}

// connectionFile is where a life keeps what ipykernel reads its sockets from.
func connectionFile(dir string) string { return filepath.Join(dir, "kernel.json") }

// connection prepares ipc sockets: no port to collide with, nobody else on the
// machine to reach them. Where the temp folder's path is too long it is loopback TCP.
func connection(dir string) (jupyter.ConnectionInfo, error) {
	conn, err := jupyter.NewIPC(dir)
	if errors.Is(err, jupyter.ErrPathTooLong) {
		conn, err = jupyter.NewTCP()
	}
	if err != nil {
		return conn, fmt.Errorf("choosing the kernel's sockets: %w", err)
	}
	if err := conn.WriteFile(connectionFile(dir)); err != nil {
		return conn, fmt.Errorf("writing the connection file: %w", err)
	}
	return conn, nil
}

// connect waits for the kernel to answer; its death ends the wait at once.
func (l *Kernel) connect(ctx context.Context, cfg Config, conn jupyter.ConnectionInfo) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.proc.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	client, err := jupyter.Dial(ctx, conn, jupyter.Options{Log: cfg.Log, MaxFrame: cfg.MaxMessageBytes})
	if err != nil {
		if l.proc.exited() {
			return fmt.Errorf("the kernel ended while starting: %s", l.proc.reason())
		}
		return fmt.Errorf("connecting to the kernel: %w", err)
	}
	l.Client, l.Info = client, client.Info()
	return l.tune(ctx)
}

// PID is the kernel's process id, which is also its process group's and session's.
func (l *Kernel) PID() int { return l.proc.pid }

// Done is closed when the process is gone.
func (l *Kernel) Done() <-chan struct{} { return l.proc.done }

// Reason says, after Done, why the life ended.
func (l *Kernel) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != "" {
		return l.asked
	}
	return l.proc.reason()
}

// Interrupt sends SIGINT to the kernel's process group, as a terminal's Ctrl-C
// would: programs that the code started get it too. Variables stay.
func (l *Kernel) Interrupt() error {
	return l.proc.signal(syscall.SIGINT)
}

// restart ends the life so that another one can take its place.
func (l *Kernel) restart() {
	l.mu.Lock()
	l.restarting = time.Now()
	l.mu.Unlock()
	l.end("restarted on request")
}

// RestartBegan is when a restart began to end the life; zero when none did. What the
// kernel sends later, a KeyboardInterrupt above all, may be the restart's doing.
func (l *Kernel) RestartBegan() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restarting
}

// end goes down the ladder: interrupt, shutdown_request, SIGTERM, SIGKILL. It
// returns when the process is gone: within twice politeTime and termTime.
func (l *Kernel) end(why string) {
	l.mu.Lock()
	l.asked = why
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), politeTime)
	defer cancel()
	_ = l.Interrupt()
	_, _ = l.Client.Send(ctx, jupyter.Control, jupyter.MsgShutdownRequest, jupyter.ShutdownRequest{})
	if l.goneWithin(politeTime) {
		return
	}
	_ = l.proc.signal(syscall.SIGTERM)
	if l.goneWithin(termTime) {
		return
	}
	l.proc.kill()
	<-l.proc.done
}

func (l *Kernel) goneWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.proc.done:
		return true
	case <-timer.C:
		return false
	}
}

// EndedOnRequest reports whether the life is being ended, or was ended, on request rather
// than by a death of its own.
func (l *Kernel) EndedOnRequest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked != ""
}

// close frees what a gone process leaves behind.
func (l *Kernel) close() {
	if l.Client != nil {
		l.Client.Close()
	}
	os.RemoveAll(l.dir)
}
