// Package kernel keeps one ipykernel running. It starts the process, waits until it
// answers, interrupts it, ends it, notices its death and starts the next one.
//
// It knows nothing of executions or HTTP, and leaves every message to its user, who runs
// code. Each process is a Kernel with its own ID: a new ID means that all variables
// are gone. Start reading at Supervisor.Run.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"colabrelay/executor/account"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/kernelpy"
)

const (
	// readyTimeout is generous: on a cold Colab disk, importing IPython took 20 s.
	readyTimeout = 90 * time.Second
	// maxDeaths is how many kernels in a row may die within settled of their start, and
	// without a run that succeeded, before the supervisor stops restarting them.
	maxDeaths = 5
	settled   = 10 * time.Second
)

// Reasons why there is no kernel.
var (
	// ErrDead means that the kernel died too often in a row and waits for Restart.
	ErrDead = errors.New("kernel is dead")
	// ErrStarting means that the kernel is not ready yet.
	ErrStarting = errors.New("kernel is starting")
	// ErrStopped means that Run has ended.
	ErrStopped = errors.New("kernel is shut down")
)

// Config says which kernel to run and where.
type Config struct {
	Python   Python   // from Find
	WorkDir  string   // the kernel's working directory
	StateDir string   // holds the record by which the next executor ends a leftover kernel
	Place    string   // where the state folder is; marks the kernel's folders in the temp folder
	Environ  []string // like os.Environ; secrets are removed
	// User runs the kernel; nil means this process's own user. It is marked by User.For.
	User *account.User
	// MaxMessageBytes bounds what is held of one message; 0 means jupyter's default.
	MaxMessageBytes int64
	Log             *slog.Logger
}

// Supervisor runs one kernel process after another.
type Supervisor struct {
	cfg      Config
	log      *slog.Logger
	restarts chan restart
	stopped  chan struct{} // closed when Run ends

	mu      sync.Mutex
	kernel  *Kernel       // nil unless it is ready
	changed chan struct{} // closed when kernel or status changes, then replaced
	status  contract.KernelStatus
	started int    // kernels that became ready
	reason  string // why the last one ended
}

// New makes a supervisor; Run starts the kernel.
func New(cfg Config) *Supervisor {
	return &Supervisor{
		cfg:      cfg,
		log:      cfg.Log.With("component", "kernel"),
		restarts: make(chan restart),
		stopped:  make(chan struct{}),
		changed:  make(chan struct{}),
		status:   contract.KernelStarting,
	}
}

// Run starts the kernel, and again whenever it dies, until ctx ends. Then it ends the
// process and all that the process started. It returns an error only if no kernel ever
// became ready.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.stopped)
	if err := endLeftover(s.cfg.StateDir); err != nil {
		s.log.Warn("ending a leftover kernel", "err", err)
	}
	s.endAll()
	defer s.endAll()
	deaths := 0
	var waiting chan error // gets the result of the restart that was asked for
	for ctx.Err() == nil {
		k, err := s.start(ctx)
		if err == nil {
			s.set(k, contract.KernelIdle)
			answer(waiting, nil)
			began := time.Now()
			waiting = s.watch(ctx, k)
			if time.Since(began) >= settled || k.succeeded.Load() || waiting != nil {
				deaths = 0
			}
		} else {
			s.setReason(err.Error())
		}
		if ctx.Err() != nil {
			break
		}
		if waiting != nil && err == nil {
			continue // it was restarted and did not die
		}
		if deaths++; deaths < maxDeaths {
			continue
		}
		answer(waiting, fmt.Errorf("%w: %s", ErrDead, s.Status().Reason))
		if err != nil && s.Status().KernelsStarted == 0 {
			return fmt.Errorf("starting the kernel with %q: %w", s.cfg.Python.Path, err)
		}
		waiting = s.awaitRestart(ctx)
		deaths = 0
	}
	answer(waiting, ErrStopped)
	return nil
}

// watch returns when k has ended: the channel for the result of the restart that ended
// it, or nil.
func (s *Supervisor) watch(ctx context.Context, k *Kernel) (waiting chan error) {
	waiting = s.awaitEnd(ctx, k)
	s.set(nil, contract.KernelStarting)
	s.setReason(k.Reason())
	k.close()
	if k.process.left != nil {
		s.log.Warn("ending the kernel's processes", "kernel_id", k.ID, "err", k.process.left)
	}
	s.log.Info("kernel ended", "kernel_id", k.ID)
	return waiting
}

// awaitEnd returns when k has ended. A restart of an earlier kernel has already happened:
// callers that ask for one at the same time share it.
func (s *Supervisor) awaitEnd(ctx context.Context, k *Kernel) (waiting chan error) {
	for {
		select {
		case <-k.Done():
			s.log.Warn("kernel died", "kernel_id", k.ID, "reason", k.Reason())
			return nil
		case r := <-s.restarts:
			if r.kernelID != k.ID {
				answer(r.done, nil)
				continue
			}
			k.endForRestart()
			return r.done
		case <-ctx.Done():
			k.end("the executor shut down")
			return nil
		}
	}
}

// awaitRestart waits, without a kernel, until a restart of any kernel is asked for.
func (s *Supervisor) awaitRestart(ctx context.Context) (waiting chan error) {
	s.set(nil, contract.KernelDead)
	s.log.Error("the kernel died too often and is not started again until a restart is requested", "deaths", maxDeaths)
	select {
	case r := <-s.restarts:
		waiting = r.done
		s.set(nil, contract.KernelStarting)
	case <-ctx.Done():
	}
	return waiting
}

// answer sends the result of a restart, if one was asked for.
func answer(waiting chan error, err error) {
	if waiting != nil {
		waiting <- err // buffered
	}
}

func (s *Supervisor) start(ctx context.Context) (*Kernel, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := removeRemains(s.cfg.User, ownerOf(s.cfg.Place)); err != nil {
		s.log.Warn("removing the files of a killed kernel", "err", err)
	}
	k, err := startKernel(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	s.log.Info("kernel ready", "kernel_id", k.ID, "pid", k.PID(), "dur", time.Since(k.Started))
	return k, nil
}

// endAll ends whatever code of another user has left running.
func (s *Supervisor) endAll() {
	if err := s.cfg.User.EndAll(); err != nil {
		s.log.Warn("ending the kernel's processes", "err", err)
	}
}

func (s *Supervisor) set(k *Kernel, status contract.KernelStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernel, s.status = k, status
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Supervisor) setReason(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

const (
	// politeTime is how long a kernel has to end after SIGINT and a shutdown_request,
	// before SIGTERM.
	politeTime = 2 * time.Second
	// replyTime is the part of politeTime in which interrupted code may end. ipykernel 7
	// loses the code's reply if it handles a shutdown_request at the same time.
	replyTime = politeTime / 2
	// termTime is how long it has to end after SIGTERM, before SIGKILL.
	termTime = time.Second
)

// Kernel is one kernel process, from its start to its end.
type Kernel struct {
	ID      string // unique to this process
	Client  *jupyter.Client
	Started time.Time

	process *process
	user    *account.User
	dir     string // for the connection file and the sockets; belongs to user

	succeeded atomic.Bool // see RunSucceeded

	mu           sync.Mutex
	endedBecause string    // empty if we did not end it
	replaced     bool      // it was killed after it had replaced itself
	restartBegan time.Time // zero if no restart ended it
}

// startKernel starts a process and returns when it answers. If it does not answer before
// ctx ends, the process is ended again.
func startKernel(ctx context.Context, cfg Config) (*Kernel, error) {
	k := &Kernel{ID: uuid.NewString(), Started: time.Now(), user: cfg.User}
	var conn jupyter.ConnectionInfo
	var err error
	k.user.Do(func() { k.dir, conn, err = runtimeFolder(ownerOf(cfg.Place)) })
	if err != nil {
		return nil, fmt.Errorf("making the kernel's folder: %w", err)
	}
	k.process, err = startProcess(cfg, k.dir)
	if err != nil {
		k.close()
		return nil, fmt.Errorf("starting %q: %w", cfg.Python.Path, err)
	}
	if err := k.connect(ctx, cfg, conn); err != nil {
		k.process.kill()
		<-k.process.done
		k.close()
		return nil, err
	}
	k.process.output.forget()
	return k, nil
}

// runtimeFolder makes a folder with what the kernel needs to start. It is not in the work
// directory, because the path of a socket has at most 107 bytes. If the temp folder's own path is
// too long or its disk full, it is in memory: only code of a kernel may be able to delete files there.
func runtimeFolder(owner string) (dir string, conn jupyter.ConnectionInfo, err error) {
	dir, conn, err = runtimeFolderIn(os.TempDir(), owner)
	if err != nil {
		inMemory, itsConn, memoryErr := runtimeFolderIn(contract.MemoryFolder, owner)
		if memoryErr == nil {
			return inMemory, itsConn, nil
		}
	}
	return dir, conn, err
}

func runtimeFolderIn(temp, owner string) (dir string, conn jupyter.ConnectionInfo, err error) {
	if dir, err = os.MkdirTemp(temp, runtimePrefix+owner+"-"); err != nil {
		return "", conn, err
	}
	conn, err = connection(dir)
	if err == nil {
		err = os.WriteFile(startScript(dir), []byte(kernelpy.Script("start")), 0o600)
	}
	if err != nil {
		os.RemoveAll(dir)
	}
	return dir, conn, err
}

func startScript(dir string) string { return filepath.Join(dir, "start.py") }

// connectionFile is the file in a kernel's folder that names the sockets for ipykernel.
func connectionFile(dir string) string { return filepath.Join(dir, "kernel.json") }

// connection prepares ipc sockets: they need no free port, and no other user of the
// machine can reach them.
func connection(dir string) (jupyter.ConnectionInfo, error) {
	conn, err := jupyter.NewIPC(dir)
	if err != nil {
		return conn, err
	}
	return conn, keep.WriteJSON(connectionFile(dir), conn)
}

// connect waits until the kernel answers. The wait ends with the process.
func (k *Kernel) connect(ctx context.Context, cfg Config, conn jupyter.ConnectionInfo) error {
	ctx, cancel := k.WhileRunning(ctx)
	defer cancel()
	var err error
	k.Client, err = jupyter.Dial(ctx, conn, jupyter.Options{Log: cfg.Log, MaxFrame: cfg.MaxMessageBytes, As: k.user.Do})
	if err != nil {
		if k.process.exited() {
			return fmt.Errorf("the kernel ended while starting: %s", k.process.reason())
		}
		return fmt.Errorf("connecting to the kernel: %w", err)
	}
	go k.endIfReplaced()
	return k.tune(ctx)
}

// endIfReplaced kills the process if code has replaced it by another kernel, so that it counts as
// what it is for the variables: an end.
func (k *Kernel) endIfReplaced() {
	select {
	case <-k.process.done:
	case <-k.Client.Replaced():
		k.mu.Lock()
		k.replaced = true
		k.mu.Unlock()
		k.process.kill()
	}
}

// WhileRunning returns a context that ends with ctx or with the process.
func (k *Kernel) WhileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-k.process.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// PID is the kernel's process id, which is also the id of its group and session.
func (k *Kernel) PID() int { return k.process.pid }

// Done is closed when the process has ended.
func (k *Kernel) Done() <-chan struct{} { return k.process.done }

// Reason returns, after Done, why the kernel ended.
func (k *Kernel) Reason() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.endedBecause != "":
		return k.endedBecause
	case k.replaced:
		return "its process replaced itself by a new one (exec), without the variables"
	}
	return k.process.reason()
}

// EndedOnRequest reports whether the kernel is being or was ended on request, and did
// not die.
func (k *Kernel) EndedOnRequest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.endedBecause != ""
}

// RunSucceeded tells that code has run without an error. The kernel works, so deaths before
// its own do not count; see maxDeaths.
func (k *Kernel) RunSucceeded() { k.succeeded.Store(true) }

// RestartBegan is when a restart began to end the kernel, zero if none did. Messages that
// the kernel sends later, above all a KeyboardInterrupt, may be effects of the restart.
func (k *Kernel) RestartBegan() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.restartBegan
}

// Interrupt sends SIGINT to the kernel's process group, like Ctrl-C in a terminal, so
// that programs that the code started get it too. Variables are kept.
func (k *Kernel) Interrupt() error {
	return k.process.signal(syscall.SIGINT)
}

func (k *Kernel) endForRestart() {
	k.mu.Lock()
	k.restartBegan = time.Now()
	k.mu.Unlock()
	k.end("restarted on request")
}

// end ends the process: by an interrupt and a shutdown_request, then SIGTERM, then
// SIGKILL. It returns when the process has ended, soon after politeTime and termTime.
func (k *Kernel) end(because string) {
	k.mu.Lock()
	k.endedBecause = because
	k.mu.Unlock()
	limit := time.Now().Add(politeTime)
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	_ = k.Interrupt()
	k.awaitReplies(ctx)
	_, _ = k.Client.Send(ctx, jupyter.Control, jupyter.MsgShutdownRequest, jupyter.ShutdownRequest{})
	if k.endsWithin(time.Until(limit)) {
		return
	}
	_ = k.process.signal(syscall.SIGTERM)
	if k.endsWithin(termTime) {
		return
	}
	k.process.kill()
	<-k.process.done
}

// awaitReplies returns when the kernel has sent its replies to all requests on shell,
// because it answers requests in their order, or after replyTime.
func (k *Kernel) awaitReplies(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, replyTime)
	defer stop()
	ctx, cancel := k.WhileRunning(ctx)
	defer cancel()
	if reply, err := k.Client.Request(ctx, jupyter.Shell, jupyter.MsgKernelInfoRequest, nil); err == nil {
		reply.Release()
	}
}

func (k *Kernel) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-k.process.done:
		return true
	case <-timer.C:
		return false
	}
}

// close closes the connection of an ended kernel and deletes its folder.
func (k *Kernel) close() {
	if k.Client != nil {
		k.Client.Close()
	}
	_ = k.user.RemoveAll(k.dir) // the next kernel's start tries again
}

// iopubLimit is how many messages the kernel holds for a reader that is behind. It
// allocates no memory in advance. Of big messages, the reader drops and counts some long
// before that.
const iopubLimit = 200_000

// flushSeconds is how long the kernel collects what is printed without flush. With
// ipykernel's 0.2 s, a line of a long run reached the relay 200 ms late.
const flushSeconds = 0.02

// tune has a new kernel hold more outputs, send prints sooner and show sys.exit without a
// traceback. A kernel of another kind may ignore it.
func (k *Kernel) tune(ctx context.Context) error {
	call := kernelpy.Call{Function: "tune.start", Arguments: []any{iopubLimit, flushSeconds}, Delivery: kernelpy.Reply}
	reply, err := k.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{"tune": call.Code(true)},
	})
	if err != nil {
		return fmt.Errorf("tuning the kernel: %w", err)
	}
	reply.Release()
	return nil
}

// Await waits until a kernel is ready. The error is ErrDead if no kernel is started any
// more, ErrStopped after Run has ended, or that of ctx.
func (s *Supervisor) Await(ctx context.Context) (*Kernel, error) {
	for {
		changed := s.Changed()
		k, err := s.Ready()
		if !errors.Is(err, ErrStarting) {
			return k, err
		}
		select {
		case <-changed:
		case <-s.stopped:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ready returns the kernel that is ready. The error is ErrStarting or ErrDead.
func (s *Supervisor) Ready() (*Kernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kernel != nil:
		return s.kernel, nil
	case s.status == contract.KernelDead:
		return nil, fmt.Errorf("%w: it died %d times in a row, and no run succeeded in between; last: %s", ErrDead, maxDeaths, s.reason)
	}
	return nil, ErrStarting
}

// Changed returns a channel that is closed at the next change of kernel or status.
func (s *Supervisor) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status returns what is reported of the kernel. A kernel that is ready counts as idle:
// only the caller that runs code on it knows whether it is busy.
func (s *Supervisor) Status() contract.Kernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := contract.Kernel{
		Status:         s.status,
		Python:         s.cfg.Python.Version,
		IPyKernel:      s.cfg.Python.IPyKernel,
		KernelsStarted: s.started,
		Reason:         s.reason,
	}
	if s.kernel != nil {
		started := s.kernel.Started.UTC()
		status.KernelID, status.PID, status.StartedAt = s.kernel.ID, s.kernel.PID(), &started
	}
	return status
}

// restart asks for another kernel than the one with this id.
type restart struct {
	kernelID string
	done     chan error // buffered; gets nil when the next kernel is ready
}

// Restart ends the kernel with the given id and returns when the next one is ready. If
// another kernel is current, it only waits until that one is ready. After ErrDead it
// starts a kernel whatever the id is.
func (s *Supervisor) Restart(ctx context.Context, kernelID string) error {
	done := make(chan error, 1)
	select {
	case s.restarts <- restart{kernelID, done}:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Record writes kernel.json again after the state directory was deleted. By it the next
// executor ends what outlives a kill of this one.
func (s *Supervisor) Record() error {
	k, err := s.Ready()
	if err != nil {
		return nil // the next kernel writes its own
	}
	return writeRecord(k.process.record, k.process.pid)
}
