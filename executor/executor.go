package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/api"
	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/tunnel"
	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

const (
	// httpGrace is how long answers under way get once the work has ended; what still
	// waits then is woken, gets as long again, and is cut off.
	httpGrace = 500 * time.Millisecond
	// endTimeout bounds the whole end: a VM that is taken away gives about 10 s.
	endTimeout = 9500 * time.Millisecond
)

// errEndTimeout means something did not end in time and was left to the system.
var errEndTimeout = fmt.Errorf("not all had ended after %v; left the rest to the system", endTimeout)

// minMemoryGB is the free memory below which a run is refused.
var minMemoryGB = float64(execution.DefaultLimits.MinMemory) / (1 << 30)

// limits are told by probe, for callers to plan with.
var limits = contract.Limits{
	MaxTimeoutSeconds: int(contract.MaxTimeout.Seconds()),
	MaxQueue:          execution.DefaultLimits.Queue,
	MaxCodeBytes:      contract.MaxBodyBytes,
	MaxLogBytes:       journal.DefaultLimits.LogBytes,
	MinMemoryGB:       minMemoryGB,
}

// executor is the running program.
type executor struct {
	cfg     config
	state   *state
	file    *logFile
	environ []string
	started time.Time
	start   string // names this process in contract.Instance
	log     *slog.Logger
	notice  *notice
	api     *api.API
	server  *http.Server
}

// run starts everything and blocks until ctx, a fault or a shutdown request has
// ended all of it. The network outlives the work: a relay that waits for an
// execution is told how it was interrupted.
func (x *executor) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	network, endNetwork := context.WithCancel(context.WithoutCancel(ctx))
	defer endNetwork()
	requests, endRequests := context.WithCancel(network)
	defer endRequests()
	x.api = api.New(api.Config{
		Secret: x.cfg.secret, Instance: contract.Instance{ID: x.state.instanceID, Start: x.start}, Version: version, Started: x.started,
		Shutdown: stop, Ending: ctx.Done(), Log: x.log, ClientAddr: tunnel.ClientAddr,
	})
	x.server = api.Server(tunnel.Restrict(x.cfg.tunnel.allow, x.api), tunnel.ConnContext)
	x.server.BaseContext = func(net.Listener) context.Context { return requests }
	x.server.ErrorLog = slog.NewLogLogger(x.log.Handler(), slog.LevelInfo) // broken connections, mostly

	x.log.Info("starting", "component", "executor", "version", version, "listen", x.cfg.listen, "tunnel", x.cfg.tunnel.kind,
		"workdir", x.cfg.workDir, "state_dir", x.cfg.stateDir, "key_id", x.cfg.secret.KeyID(), "instance_id", x.state.instanceID)
	g, ctx := errgroup.WithContext(ctx)
	if err := x.open(network, g); err != nil {
		return err
	}
	g.Go(func() error {
		err := x.work(ctx)
		x.endHTTP(endRequests)
		endNetwork()
		return err
	})
	return x.wait(ctx, g)
}

// open starts the listener on this machine and the tunnel.
func (x *executor) open(network context.Context, g *errgroup.Group) error {
	public, err := x.cfg.tunnel.newTunnel(x.log)
	if err != nil {
		return err
	}
	if public != nil {
		g.Go(func() error { return public.Run(network, x.notice.public, x.server.Serve) })
	}
	local := tunnel.NewLocal(x.cfg.listen)
	g.Go(func() error { return local.Run(network, x.notice.local, x.server.Serve) })
	return nil
}

// wait returns when all has ended, or when that takes too long after ctx ended.
func (x *executor) wait(ctx context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == context.Canceled { // asked for; a fault is told when all has ended
		x.notice.ending()
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endTimeout):
		return errEndTimeout
	}
}

// work finds the interpreter and runs kernel and queue until ctx ends. The queue
// ends before the kernel, so that the running execution is interrupted and its log
// closed while there is still a kernel to answer.
func (x *executor) work(ctx context.Context) error {
	python, err := kernel.Find(ctx, x.cfg.python, kernel.Environ(x.environ, x.cfg.workDir))
	if ctx.Err() != nil {
		return nil // the end came first; err, if any, is only that
	}
	if err != nil {
		return err
	}
	b, err := x.backend(python)
	if err != nil {
		return err
	}
	x.api.Attach(b)
	kernelCtx, endKernel := context.WithCancel(context.WithoutCancel(ctx))
	defer endKernel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.Kernel.Run(kernelCtx) })
	g.Go(func() error {
		defer endKernel()
		return b.Queue.Run(ctx)
	})
	g.Go(func() error { return b.Digests.Run(ctx) })
	g.Go(func() error { return b.Uploads.Run(ctx) })
	g.Go(func() error { return x.keepState(ctx, b) })
	g.Go(func() error {
		if _, err := b.Kernel.Await(ctx); err != nil {
			return nil // it ended first, or Kernel.Run tells why there is none
		}
		x.notice.kernel(b.Kernel.Status())
		return nil
	})
	return g.Wait()
}

func (x *executor) backend(python kernel.Python) (api.Backend, error) {
	b := api.Backend{
		Kernel: kernel.New(kernel.Config{
			Python: python, WorkDir: x.cfg.workDir, StateDir: x.cfg.stateDir, Instance: x.state.instanceID, Environ: x.environ, Log: x.log,
		}),
		Prober: probe.New(probe.Config{
			WorkDir: x.cfg.workDir, Python: python.Path, Started: x.started, Getenv: lookup(kernel.Environ(x.environ, x.cfg.workDir)), Limits: limits,
		}),
	}
	var err error
	if b.Files, err = files.Open(x.cfg.workDir, x.cfg.allow, x.cfg.stateDir); err != nil {
		return b, err
	}
	b.Digests = files.NewDigests(b.Files)
	if b.Uploads, err = uploads.Open(b.Files, x.state.path("uploads")); err != nil {
		return b, err
	}
	if b.Journal, err = journal.Open(journal.Config{Dir: x.state.path("executions"), Log: x.log}); err != nil {
		return b, err
	}
	b.Queue = execution.New(execution.Config{Kernel: b.Kernel, Journal: b.Journal, Memory: memory, Log: x.log})
	return b, nil
}

func memory() (used, available uint64, err error) {
	mem, err := probe.Memory()
	return mem.Used, mem.Available, err
}

// endHTTP lets answers under way arrive, then wakes those that still wait, then cuts
// off the rest.
func (x *executor) endHTTP(endRequests func()) {
	for _, before := range []func(){func() {}, endRequests} {
		before()
		ctx, cancel := context.WithTimeout(context.Background(), httpGrace)
		err := x.server.Shutdown(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	x.server.Close()
}

// lookup is os.Getenv over an environment that was read once.
func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, entry := range environ {
			if key, value, _ := strings.Cut(entry, "="); key == name {
				return value
			}
		}
		return ""
	}
}
