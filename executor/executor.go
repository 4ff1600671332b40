package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/api"
	"colabrelay/executor/audit"
	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/statedir"
	"colabrelay/executor/tunnel"
	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

const (
	// httpGrace is how long responses in progress get once the work has ended. Requests
	// that still wait are then woken, get the same time again, and are cut off.
	httpGrace = 500 * time.Millisecond
	// endTimeout bounds the whole shutdown: a VM that is taken away leaves about 10 s.
	endTimeout = 9500 * time.Millisecond
)

// errEndTimeout: something did not end in time, and ends with the process.
var errEndTimeout = fmt.Errorf("the shutdown took longer than %v and was cut short", endTimeout)

// minMemoryGB is the free memory below which runs are refused.
var minMemoryGB = float64(execution.DefaultLimits.MinMemory) / (1 << 30)

// limits are part of a probe's result, so that callers can plan.
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
	state   *statedir.Dir
	audit   *audit.Log // nil: none
	environ []string
	started time.Time
	start   string // identifies this process in contract.Instance
	log     *slog.Logger
	notice  *notice
	api     *api.API
	server  *http.Server
}

// run starts everything and blocks until ctx or a fault has
// ended all of it. The network outlives the work, so that a relay that waits for an
// execution learns how it was interrupted.
func (x *executor) run(ctx context.Context) error {
	network, endNetwork := context.WithCancel(context.WithoutCancel(ctx))
	defer endNetwork()
	requests, endRequests := context.WithCancel(network)
	defer endRequests()
	x.api = api.New(api.Config{
		Secret: x.cfg.secret, Instance: contract.Instance{ID: x.state.InstanceID(), Start: x.start}, Version: version, Started: x.started,
		Ending: ctx.Done(), Log: x.log, ClientAddr: tunnel.ClientAddr,
		Verified: x.cfg.enroll.verified, Audit: x.audit,
	})
	x.server = api.Server(tunnel.Restrict(x.cfg.tunnel.allow, x.api), tunnel.ConnContext)
	x.server.BaseContext = func(net.Listener) context.Context { return requests }
	x.server.ErrorLog = slog.NewLogLogger(x.log.Handler(), slog.LevelInfo) // broken connections, mostly

	x.log.Info("starting", "component", "executor", "version", version, "listen", x.cfg.listen, "tunnel", x.cfg.tunnel.kind,
		"workdir", x.cfg.workDir, "state_dir", x.cfg.stateDir, "key_id", x.cfg.secret.KeyID(), "instance_id", x.state.InstanceID())
	g, ctx := errgroup.WithContext(ctx)
	if err := x.open(network, g); err != nil {
		return err
	}
	g.Go(func() error { return x.audit.Run(network) })
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

// wait returns when everything has ended, or when that takes too long after ctx
// has ended.
func (x *executor) wait(ctx context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == context.Canceled { // on request; a fault is reported when everything has ended
		x.notice.ending()
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endTimeout):
		return errEndTimeout
	}
}

// work finds the interpreter and runs kernel and queue until ctx ends. The queue ends
// before the kernel: the running execution is interrupted and its log closed while
// the kernel can still respond.
func (x *executor) work(ctx context.Context) error {
	python, err := kernel.Find(ctx, x.cfg.user, x.cfg.python, kernel.Environ(x.environ, x.cfg.workDir))
	if ctx.Err() != nil {
		return nil // err, if any, is only the end of ctx
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
	g.Go(func() error { return b.Uploads.Run(ctx) })
	g.Go(func() error { return x.restoreState(ctx, b) })
	g.Go(func() error {
		if _, err := b.Kernel.Await(ctx); err != nil {
			return nil // ctx has ended, or Kernel.Run reports why there is no kernel
		}
		x.notice.kernel(b.Kernel.Status())
		return nil
	})
	return g.Wait()
}

func (x *executor) backend(python kernel.Python) (api.Backend, error) {
	b := api.Backend{
		Kernel: kernel.New(kernel.Config{
			Python: python, WorkDir: x.cfg.workDir, StateDir: x.cfg.stateDir, Place: x.state.Place(), Environ: x.environ, User: x.cfg.user, Log: x.log,
		}),
		Prober: probe.New(probe.Config{
			WorkDir: x.cfg.workDir, Python: python.Path, User: x.cfg.user, Started: x.started, Environ: kernel.Environ(x.environ, x.cfg.workDir), Limits: limits,
		}),
	}
	var err error
	if b.Files, err = files.Open(x.cfg.workDir, x.cfg.allow, x.cfg.stateDir, x.cfg.user); err != nil {
		return b, err
	}
	b.Digests = files.NewDigests(b.Files)
	if b.Uploads, err = uploads.Open(b.Files, b.Digests, x.state.Path("uploads"), x.log); err != nil {
		return b, err
	}
	if b.Journal, err = journal.Open(journal.Config{Dir: x.state.Path("executions"), Log: x.log, Finished: x.audit.Ended}); err != nil {
		return b, err
	}
	b.Queue = execution.New(execution.Config{Kernel: b.Kernel, Journal: b.Journal, Memory: memory, Log: x.log})
	b.Jobs = job.Open(job.Config{
		Queue: b.Queue, Journal: b.Journal, Log: x.log,
		Starting: func(caller string, s contract.Submit) { x.audit.Submitted(audit.Source{Caller: caller}, s) },
	})
	return b, nil
}

func memory() (used, available uint64, err error) {
	mem, err := probe.Memory()
	return mem.Used, mem.Available, err
}

// endHTTP lets responses in progress finish, then wakes the requests that still wait,
// then cuts off the rest.
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

const (
	// checkStateEvery is how often the state dir is checked. It lies in the workdir,
	// where `git clean -fdx` deletes it. Until it is restored, a second executor could
	// use it, and one that is started after a kill has another instance_id.
	checkStateEvery = 100 * time.Millisecond
	// settleTime is after what time a restored state dir is looked at again, until nothing was
	// missing, because the program that deletes it may take a while. A failed attempt is
	// repeated after it, too.
	settleTime = 2 * time.Second
)

// restoreState restores the state dir whenever it was deleted, until ctx ends.
func (x *executor) restoreState(ctx context.Context, b api.Backend) error {
	tick := time.NewTicker(checkStateEvery)
	defer tick.Stop()
	var again <-chan time.Time
	for failing := false; ; {
		due := false
		select {
		case <-tick.C:
		case <-again:
			due = true
		case <-ctx.Done():
			return nil
		}
		deleted := x.state.Deleted()
		if !due && (!deleted || failing) {
			continue
		}
		missing := 0
		err := x.state.Restore(func() (err error) {
			missing, err = b.Journal.Restore()
			return err
		})
		if deleted && err == nil {
			err = b.Kernel.Record()
		}
		if again = nil; deleted || missing > 0 || err != nil {
			again = time.After(settleTime)
		}
		switch {
		case err == nil && deleted:
			x.log.Warn("the state folder was deleted; it was restored from memory", "component", "executor", "state_dir", x.cfg.stateDir)
		case err != nil && !failing:
			x.log.Error("the state folder was deleted and can't be restored yet; the executor keeps trying", "component", "executor", "err", err)
		}
		failing = err != nil
	}
}

// withholdSecrets removes the variables that the kernel's code must not see from the
// environment that child processes inherit. It returns a getenv that still knows them.
// Any process of the same user can read an inherited copy in /proc/PID/environ:
// keepPrivate protects this process only, not its children.
func withholdSecrets(getenv func(string) string) func(string) string {
	withheld := map[string]string{}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); kernel.Withheld(name) {
			withheld[name] = getenv(name)
			os.Unsetenv(name)
		}
	}
	return func(name string) string {
		if value, found := withheld[name]; found {
			return value
		}
		return getenv(name)
	}
}
