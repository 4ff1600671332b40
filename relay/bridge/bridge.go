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
	"errors"
	"fmt"
	"log/slog"
	"sync"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/shared/keep"
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
	cfg  Config
	jobs *keep.Flights[Paired] // one at a time
	mu   sync.Mutex            // guards the look for another job, before a call joins it

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
	return &Bridge{cfg: cfg, jobs: keep.NewFlights[Paired](keepResult)}
}

// Close ends a bridge that is being built and removes its cell, for which the tab must still
// be connected. It returns when that is done, after at most removeLimit.
func (b *Bridge) Close() { b.jobs.Close(ErrClosed) }

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
	for {
		flight, err := b.join(nb, r)
		if err != nil {
			return Paired{}, err
		}
		ours := flight.About.(job).nb == nb // one in a tab that was lost ends by itself
		tell := step
		if !ours {
			tell = func(string) {}
		}
		paired, err := flight.Wait(ctx, tell)
		if errors.Is(err, keep.ErrUnderWay) {
			return Paired{}, &StartingError{flight.Step()}
		}
		if ours {
			return paired, err
		}
	}
}

// What can keep a bridge from standing. Package hint says what to do about each.
var (
	// ErrStarting matches *StartingError.
	ErrStarting = errors.New("the executor is still being started")
	// ErrNotReady: the page answered for 300 s that it ran nothing.
	ErrNotReady = errors.New("the notebook did not run a cell within 300 s")
	// ErrPage: the page refused to run a cell, as when there is no VM or no GPU.
	ErrPage = errors.New("the page in Colab could not run a cell")
	// ErrCell: a cell said why there is no executor, as after a failed download.
	ErrCell = errors.New("the executor could not be started on the VM")
	// ErrExpired: keys and answers are valid for 180 s.
	ErrExpired = errors.New("the executor was not ready within 180 s")
	// ErrNotGenuine: the answer is not that of the executor that opened the grant.
	ErrNotGenuine = errors.New("the answer that the page showed is not the executor's, so nothing was paired")
	// ErrUnreachable: the executor runs, but no signed request reached it.
	ErrUnreachable = errors.New("the executor was started, but this computer cannot reach it, so it was not paired")
	// ErrNameTaken: the name belongs to another pairing, which stays.
	ErrNameTaken = errors.New("the name belongs to another pairing")
	// ErrBusy: a bridge for another runtime is being built in this tab.
	ErrBusy = errors.New("an executor is already being started in this tab")
	// ErrPrepare: a setting is wrong, or the release could not be asked for its executor.
	ErrPrepare = errors.New("the start of an executor could not be prepared")
	// ErrClosed: the relay ends.
	ErrClosed = errors.New("the relay ended before the executor was paired")
)

// StartingError says that the caller's time ended before the bridge stood. It goes on.
type StartingError struct {
	Step string // what it waits for
}

func (e *StartingError) Error() string { return ErrStarting.Error() + ": " + e.Step }

// Unwrap makes it match ErrStarting.
func (e *StartingError) Unwrap() error { return ErrStarting }

// names are those that a bridge tries, in this order, if the caller gave none.
var names = []string{pairing.DefaultName, "colab-page", "colab-page-2", "colab-page-3"}

// checkName refuses a name at once that no bridge can pair.
func (b *Bridge) checkName(name string) error {
	if name == "" {
		return nil
	}
	if err := pairing.CheckName(name); err != nil {
		return err
	}
	_, err := b.nameFor(name, nil)
	return err
}

// nameFor returns the name for a new pairing. A pairing that a person made is never replaced,
// and neither is one of a bridge whose executor is among those that answer.
func (b *Bridge) nameFor(asked string, answer []executor) (string, error) {
	candidates := names
	if asked != "" {
		candidates = []string{asked}
	}
	for _, name := range candidates {
		old, err := b.cfg.Store.Get(name)
		switch {
		case errors.Is(err, pairing.ErrNotPaired), errors.Is(err, pairing.ErrDamaged): // Put keeps a damaged list aside
			return name, nil
		case err != nil:
			return "", err
		case old.FromPage && !isAmong(answer, name):
			return name, nil
		}
	}
	if asked == "" {
		return "", fmt.Errorf("%w: all of %q are in use; name another", ErrNameTaken, names)
	}
	return "", fmt.Errorf("%w: %q", ErrNameTaken, asked)
}

// save stores the pairing, under another name if the one that was asked for was taken
// meanwhile.
func (b *Bridge) save(r pairing.Runtime, asked string, answer []executor) (Paired, error) {
	name, err := b.nameFor(asked, answer)
	if errors.Is(err, ErrNameTaken) {
		name, err = b.nameFor("", answer)
	}
	if err != nil {
		return Paired{}, err
	}
	r.Name = name
	before, err := b.cfg.Store.Put(r)
	if err != nil {
		return Paired{}, err
	}
	paired := Paired{Runtime: r}
	if before.Damage != nil {
		paired.Notes = append(paired.Notes, "Note: "+before.Damage.Error()+".")
	}
	if before.URL != "" {
		paired.Notes = append(paired.Notes, fmt.Sprintf("It replaces the pairing of an earlier start_executor with %s, whose executor no longer answers.", before.URL))
	}
	return paired.withDefault(b), nil
}

// withDefault adds which runtime calls use that name none, if that is another one.
func (p Paired) withDefault(b *Bridge) Paired {
	usual, err := pairing.Resolve("", b.cfg.Getenv, b.cfg.Store)
	switch {
	case err == nil && usual.Name == p.Runtime.Name:
	case err == nil:
		p.Notes = append(p.Notes, fmt.Sprintf("Without a runtime, calls use %q, which is another pairing: give the runtime %q to use this VM.", usual.Name, p.Runtime.Name))
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("Give the runtime %q in calls to use this VM.", p.Runtime.Name))
	}
	return p
}
