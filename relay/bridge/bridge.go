// Package bridge joins the two halves of a session in Colab by one call: in the tab that is
// connected, it starts an executor on the notebook's VM and pairs this computer with it. The
// secret travels sealed (shared/enrollment): it is never in the text of a cell, in an output,
// in what Colab saves, or in what a model reads.
//
// It must not connect a tab (relay/page does), leave a cell behind that it inserted, replace a
// pairing that a person made, or believe a tab's answer that the executor did not
// authenticate. The tab itself is trusted: one that replaces the public keys on their way can
// read the secret. Start reading at Bridge.Start, then flow.go.
package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
)

// Notebook is what a bridge needs of a connected tab; *page.Tab is one.
type Notebook interface {
	Cells(ctx context.Context, from, to int, outputs bool) ([]page.Cell, error)
	AddCode(ctx context.Context, index int, language, code string) (id string, err error)
	Update(ctx context.Context, id, content string) error
	Delete(ctx context.Context, id string) error
	Run(ctx context.Context, id string) (page.Result, error)
	Done() <-chan struct{}
}

// Tunnel is what the relay knows of the tunnel that the executor shall open.
type Tunnel struct {
	Token  string // ngrok authtoken; empty: the VM looks for one in Colab's Secrets, else it uses cloudflared
	Domain string // static domain of the ngrok account; used only with a token
}

// Format prints no token.
func (t Tunnel) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[tunnel]")) }

// LogValue is the tunnel without its token, for slog.
func (t Tunnel) LogValue() slog.Value { return slog.StringValue("[tunnel]") }

// Config is what a Bridge needs. Its functions are called once for each bridge.
type Config struct {
	Release func(ctx context.Context) (bootstrap.Release, error) // from which the VM fetches the executor
	Tunnel  func() (Tunnel, error)
	Store   *pairing.Store
	Getenv  func(string) string // of the settings, which may name another runtime as the default
	// Reach returns the instance id of the executor of r after a signed request proved that it
	// has r's secret. It tries until ctx ends.
	Reach func(ctx context.Context, r pairing.Runtime) (instanceID string, err error)
	Log   *slog.Logger // nil for none
}

// Request is what a caller of Start asks for.
type Request struct {
	Name       string // of the runtime to pair; empty: one that no other pairing of a person has
	StatusCell bool   // leave a visible cell that runs as long as the executor, so that the page does not count as idle
}

// Paired is a bridge that stands.
type Paired struct {
	Runtime pairing.Runtime
	Already bool     // the executor of an earlier bridge runs on this VM, so none was started
	Notes   []string // sentences to know, each for a person and a model
}

// Bridge builds one bridge at a time. Its methods may be called concurrently.
type Bridge struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	jobs   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	job    *job // the newest one; nil before the first

	// Only the job in progress uses these, and there is one at a time.
	pending *handover // what a lost tab interrupted
	last    started
}

// New returns a Bridge. It starts nothing.
func New(cfg Config) *Bridge {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "bridge")
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Bridge{cfg: cfg, ctx: ctx, cancel: cancel}
}

// Close ends a bridge that is being built and removes its cell, for which the tab must still
// be connected. It returns when that is done, after at most removeLimit.
func (b *Bridge) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel(ErrClosed)
	b.jobs.Wait()
}

// Start starts an executor on the VM of the tab's notebook and pairs it. When ctx ends before
// that is done, it goes on in the background and Start returns a *StartingError; the same call
// joins it. step, which may be nil, gets each step in words. Every cell that was inserted is
// removed, whatever happens; an error or a note names one that could not be.
func (b *Bridge) Start(ctx context.Context, nb Notebook, r Request, step func(string)) (Paired, error) {
	if step == nil {
		step = func(string) {}
	}
	if err := b.checkName(r.Name); err != nil {
		return Paired{}, err
	}
	j, joined, err := b.jobFor(ctx, nb, r)
	if err != nil {
		return Paired{}, err
	}
	return j.await(ctx, joined, step)
}
