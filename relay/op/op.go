// Package op is what the relay can do. Each operation is written once for its two readers: its
// arguments, what it does, and its answer as text and as JSON. A model calls it as a tool, a person
// as a command.
//
// It knows neither MCP (relay/mcp does) nor flags and files of commands (relay/cli does), makes no
// HTTP calls (relay/client does) and keeps no state that must survive it: executions live on the VM.
// Start reading at operations, the table of all; then at Call for what every tool call goes through,
// and at Do for a command.
package op

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/transfer"
	"colabrelay/relay/vm"
	"colabrelay/shared/memory"
)

// Bounds of concurrent calls.
const (
	// maxCalls bounds a runtime's calls in progress. Further calls wait for the end of one.
	maxCalls = 100
	// maxHolding bounds those that wait for runs concurrently (an executor accepts 64).
	// Further calls wait shortHold only, so that other tools can begin; a request may still
	// take shortLimit, because an answer that is cut off loses the run's id.
	maxHolding = 60
	shortHold  = time.Second
	shortLimit = 10 * time.Second
)

// Config is what the tools need.
type Config struct {
	// Resolve returns the runtime of that name; the empty name means the default one. Each
	// call resolves again. An error that is a *Problem is answered as it is.
	Resolve       func(name string) (runtimes.Runtime, error)
	SaveDir       string             // pictures and long outputs go to its folder executions
	CheckpointDir string             // of run_code_long, chunked runs and kernel states
	TransferDir   string             // of the records about transfers; empty for none
	DownloadDirs  []string           // where download_from_colab may write, beside SaveDir
	Hold          time.Duration      // how long a call may wait
	LongWait      time.Duration      // how long one may wait in a host that works on meanwhile; less than Hold means Hold
	TextLimit     int                // characters of a run's text; 0 means render.DefaultTextLimit
	Pictures      int                // bytes of the largest picture that an answer has; -1 for none; 0 leaves it to what is known of the client
	Structured    bool               // answers have JSON too
	Keep          chunked.Keep       // bounds of what is saved of chunked runs
	Notebooks     notebook.Roots     // where notebooks may be
	Guard         *transfer.Guard    // decides what upload_to_colab may read; nil for everything
	LastSeen      runtimes.LastSeen  // kernels that earlier relay processes saw
	Toolsets      []toolsets.Toolset // what is served beside Core; fixed while the relay runs
	Page          *page.Page         // Colab's page, with Toolset Page; nil if that is off
	StartExecutor StartExecutor      // of open_colab_browser_connection; nil if this relay can't
	VMs           *vm.Manager        // Colab's VMs, with Toolset Provision; nil if this relay can't start any
	Problems      []error            // wrong settings; every tool then reports them
	PairingField  string             // field of a host's extension that takes the pairing string; empty if the user has the command line
	Version       string
	OneProcessor  bool         // Go uses one processor, except while a call moves much data
	Log           *slog.Logger // nil for none
}

// Relay has the tools.
type Relay struct {
	cfg     Config
	tools   map[string]Operation
	calls   atomic.Int64 // so far
	turnsMu sync.Mutex
	turns   map[string]*turns // by the runtime's name; empty for calls that name none that is paired
	kernels lastKernels
	vmEnds  vmEnds
	givenUp givenUpCalls
	// unsure are the submits that got no answer that an executor signed. The same call asks that
	// executor for the same run, so its code does not run twice.
	unsure recent[unansweredSubmit, submitted]
	// prompts are the offsets of the prompts that answers showed, by execution. provide_input answers
	// that prompt and no other: somebody else may have answered it, or an answer may have been lost.
	prompts recent[string, int64]
	// saves are the checkpoint names of runs that had not ended when run_code_long returned, by their
	// saveKey: the get_execution that reads the end saves the answer.
	saves recent[string, string]
	// tabEditing holds an element while a call edits the notebook in the tab.
	tabEditing chan struct{}
	processors processors
}

// New makes a Relay. It starts nothing.
func New(cfg Config) *Relay {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.TextLimit == 0 {
		cfg.TextLimit = render.DefaultTextLimit
	}
	r := &Relay{
		cfg: cfg, tools: map[string]Operation{},
		turns: map[string]*turns{}, kernels: lastKernels{stored: cfg.LastSeen}, tabEditing: make(chan struct{}, 1),
	}
	if cfg.CheckpointDir != "" {
		r.givenUp.dir = filepath.Join(cfg.CheckpointDir, "given-up")
	}
	if cfg.OneProcessor {
		r.processors.all = runtime.GOMAXPROCS(1)
	}
	for _, t := range served(cfg.Toolsets) {
		r.tools[t.tool] = t
	}
	return r
}

// Definitions returns the tools that are served.
func (r *Relay) Definitions() (all []Definition) {
	for _, t := range served(r.cfg.Toolsets) {
		all = append(all, Definition{
			t.tool, t.title, t.description, inputSchema(t.inputs),
			t.has(readOnly), t.has(destructive), t.has(idempotent), t.has(openWorld), t.has(upfront),
		})
	}
	return all
}

// spec is what both readers are told of an operation beside its row of the table.
type spec struct {
	title, description string // for models
	Command
}

// Definition is what hosts see of a tool.
type Definition struct {
	Name, Title, Description                     string
	InputSchema                                  json.RawMessage
	ReadOnly, Destructive, Idempotent, OpenWorld bool
	// Upfront tools should be loaded from the start by hosts that load tools on demand.
	Upfront bool
}

// Operation is one thing that the relay can do.
type Operation struct {
	row
	spec
	Local, Bulk bool // as its traits say; more is local for people
	inputs      []argument
	args        reflect.Type
	do          func(ctx context.Context, c *call, args targeted) (payload, error)
}

// target is embedded in every tool's arguments.
type target struct {
	Runtime string `json:"runtime_name" was:"runtime" default:"" doc:"Omit for the default."`
}

func (t target) runtime() string { return t.Runtime }

// targeted is what the arguments of every tool have.
type targeted interface{ runtime() string }

// operation makes an operation with typed arguments A and payload P. The schema comes from the type
// of the arguments, so it always matches what is parsed. do returns a payload, an error that both
// readers understand, or both: a run that failed has output and an error.
func operation[A targeted, P any, PP interface {
	*P
	payload
}](s spec, do func(ctx context.Context, c *call, args A) (PP, error)) Operation {
	args := reflect.TypeFor[A]()
	return Operation{
		spec: s, inputs: argumentsOf(args), args: args,
		do: func(ctx context.Context, c *call, args targeted) (payload, error) {
			got, err := do(ctx, c, args.(A))
			if on, ok := args.(notebookArgs); ok && err != nil {
				err = c.notebookError(on.path(), err)
			}
			if got == nil {
				return nil, err
			}
			return got, err
		},
	}
}

// arguments reads a call's arguments and finds its runtime.
func (o *Operation) arguments(c *call, raw json.RawMessage) (targeted, *Problem) {
	value := reflect.New(o.args).Elem()
	notes, problem := parseArguments(o.inputs, raw, value)
	if problem != nil {
		return nil, problem
	}
	c.warnings = append(c.warnings, notes...)
	given, needless := value.Interface().(targeted), o.has(local)
	if on, ok := given.(notebookArgs); ok { // a tab, which has no path as in colab-mcp, needs no runtime
		needless = needless || on.path() == ""
	}
	return given, c.resolve(given.runtime(), needless)
}

// call is one tool call in progress. Only one goroutine may use it.
type call struct {
	*Relay
	target    runtimes.Runtime
	tool      string
	args      targeted
	asked     string        // the runtime argument; empty for the default one
	hold      time.Duration // how long it may wait for a run
	most      time.Duration // how long a patient call may; at least hold
	started   time.Time
	turn      *turns            // taken; nil for none
	progress  *progressNotifier // nil if the host wants none
	client    string            // the name of the host
	warnings  []string
	pictures  []render.Picture
	displayed int64          // bytes of pictures that count against memory.Displays
	held      memory.Holding // until the host has the answer
	sending   func()         // to be called right before the answer is sent; may be nil
	left      *givenUpCall   // what it submitted, for when it is given up
	person    *Person        // who gave the command; nil for a tool call
	reminders []reminder
	// clientLimit is after how long the client gives up its calls; 0 if that is not known.
	clientLimit time.Duration
}

// free returns bytes of pictures that are not needed any more.
func (c *call) free(bytes int64) {
	memory.Displays.Return(bytes)
	c.displayed -= bytes
}

// release frees what was held for the answer, and the call's turn.
func (c *call) release() {
	c.free(c.displayed)
	c.held.Done()
	if c.turn != nil {
		<-c.turn.running
	}
}

// resolve finds the runtime of the call; a local tool works without one.
func (c *call) resolve(name string, local bool) *Problem {
	c.asked = name
	if len(c.cfg.Problems) > 0 {
		return badSettings(c.cfg.Problems)
	}
	var err error
	if c.target, err = c.cfg.Resolve(name); err != nil && !local {
		return resolveProblem(err)
	}
	return nil
}

func (c *call) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// Request is a call of a tool by a host.
type Request struct {
	Tool      string // the name of one of Definitions
	Arguments json.RawMessage
	Host      string // its name, which is short; empty if it is not known
	Arrived   time.Time
	Progress  func(Progress) // gets the progress, until the result; nil for none
	Cancelled func() bool    // reports whether the host cancelled the call
}

// Result is the answer to a call.
type Result struct {
	Text       string
	Pictures   []render.Picture
	Structured json.RawMessage // nil unless a setting asks for it
	IsError    bool
}

// Call makes a call and gives send its result, unless ctx ends before the call's turn.
func (r *Relay) Call(ctx context.Context, q Request, send func(Result)) {
	first := r.calls.Add(1) == 1
	c := &call{Relay: r, client: q.Host}
	defer c.release()
	t := r.tools[q.Tool]
	if t.Bulk {
		r.processors.count(+1)
		defer r.processors.count(-1)
	}
	result, made := c.perform(ctx, t, q)
	switch {
	case !made:
		return
	case ctx.Err() == nil:
		c.beforeSending()
	case q.Cancelled(), c.left != nil: // also a host that ended the relay
		r.gaveUp(c.client, time.Since(q.Arrived), first, c.left)
	}
	send(result)
}

// processors are how many Go uses. Waking a thread for each goroutine that gets work takes longer
// than the relay's own part of a quick call, so it is one, except while a call moves much data.
type processors struct {
	all int // that there are; 0 leaves the number as it is

	mu   sync.Mutex
	bulk int // calls that move much data
}

func (p *processors) count(calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bulk += calls
	switch {
	case p.all == 0:
	case p.bulk == 0:
		runtime.GOMAXPROCS(1)
	default:
		runtime.GOMAXPROCS(p.all) // no effect if Go uses them already
	}
}

// backgroundHost is the name of the host that moves a long call to the background, works on, and
// shows the model the answer when it comes: Claude Code, after two minutes.
const backgroundHost = "claude-code"

// perform handles turns, time limits, progress and panics, and turns every outcome into an answer.
func (c *call) perform(ctx context.Context, o Operation, q Request) (a Result, made bool) {
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Log.Error("panic in a tool", "tool", o.tool, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.sending = nil
			a, made = c.answer(nil, internalProblem(fmt.Sprintf("the relay failed in %s", o.tool))), true
		}
	}()
	args, problem := o.arguments(c, q.Arguments)
	c.tool, c.args = o.tool, args
	turns := c.turnsOf(c.target.Name)
	select {
	case turns.running <- struct{}{}:
		c.turn = turns
	case <-ctx.Done():
		return Result{}, false
	}
	if c.started = time.Now(); q.Progress != nil {
		c.progress = startProgress(q.Progress)
		defer c.progress.stop() // also in a panic, before the answer
	}
	limit, release := c.takeHold(o.has(patient))
	defer release()
	ctx, done := context.WithTimeout(ctx, limit)
	defer done()
	var got payload
	if ctx.Err() != nil {
		problem = cancelledProblem
	} else if c.remind(ctx); problem == nil {
		var err error
		if got, err = o.do(client.WithReachLimit(ctx), c, args); err != nil {
			problem = problemOf(err)
		}
		if problem != nil && problem.arrived && !o.has(readOnly) {
			problem = problem.copy()
			problem.Message += "; what was asked for may have been done nevertheless"
		}
	}
	if problem != nil {
		c.cfg.Log.Info("tool call", "tool", o.tool, "runtime", c.target.Name, "code", problem.Code, "dur", time.Since(c.started))
	}
	return c.answer(got, problem), true
}

// turns are the turns of a runtime's calls. Each runtime has its own, so that a hundred calls of one
// that hangs keep no call of another one waiting.
type turns struct {
	running chan struct{} // one entry for each call in progress, up to maxCalls
	holding chan struct{} // one entry for each call that may wait long, up to maxHolding
}

func (r *Relay) turnsOf(runtime string) *turns {
	r.turnsMu.Lock()
	defer r.turnsMu.Unlock()
	if r.turns[runtime] == nil {
		r.turns[runtime] = &turns{make(chan struct{}, maxCalls), make(chan struct{}, maxHolding)}
	}
	return r.turns[runtime]
}

// takeHold sets how long the call may wait for a run, which is less if many calls of its runtime wait
// already, and returns how long it may take in all.
func (c *call) takeHold(patient bool) (limit time.Duration, release func()) {
	c.hold, limit, release = c.cfg.Hold, c.cfg.Hold, func() { <-c.turn.holding }
	select {
	case c.turn.holding <- struct{}{}:
	default:
		c.hold, limit, release = min(c.cfg.Hold, shortHold), min(c.cfg.Hold, shortLimit), func() {}
	}
	c.most = c.hold
	if c.client == backgroundHost && c.hold == c.cfg.Hold {
		c.most = max(c.hold, c.cfg.LongWait)
	}
	if patient {
		limit = max(limit, c.most)
	}
	if c.clientLimit = c.givenUp.limit(c.client); c.clientLimit > 0 {
		c.hold, c.most, limit = min(c.hold, c.clientLimit), min(c.most, c.clientLimit), min(limit, c.clientLimit-beforeLimit/2)
	}
	return limit, release
}
