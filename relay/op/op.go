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
	"math"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
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
	Log           *slog.Logger // nil for none
}

// Relay has the tools.
type Relay struct {
	cfg     Config
	tools   map[string]tool
	calls   atomic.Int64 // so far
	turns   turns
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
		cfg: cfg, tools: map[string]tool{},
		turns: turns{of: map[string]*runtimeTurns{}}, kernels: lastKernels{stored: cfg.LastSeen},
		tabEditing: make(chan struct{}, 1),
	}
	if cfg.CheckpointDir != "" {
		r.givenUp.dir = filepath.Join(cfg.CheckpointDir, "given-up")
	}
	for _, t := range served(cfg.Toolsets) {
		r.tools[t.def.Name] = t
	}
	return r
}

// Definitions returns the tools that are served.
func (r *Relay) Definitions() (all []Definition) {
	for _, t := range served(r.cfg.Toolsets) {
		t.def.InputSchema = inputSchema(t.inputs)
		all = append(all, t.def)
	}
	return all
}

// Sizes of a result. Claude Desktop cuts at 1 MB, pictures included.
const (
	maxResultBytes = 880_000
	maxTextRunes   = 39_500
	maxPageRunes   = 60_000 // a page of the largest events at the largest limit has less
	maxListBytes   = 36_000 // of a list in structuredContent
)

// spec is what both readers are told of an operation beside its row of the table.
type spec struct {
	title, description string
	command            Command
}

// Definition is what hosts see of a tool.
type Definition struct {
	Name, Title, Description                     string
	InputSchema                                  json.RawMessage
	ReadOnly, Destructive, Idempotent, OpenWorld bool
	// Upfront tools should be loaded from the start by hosts that load tools on demand.
	Upfront bool
}

// tool is an operation and what hosts see of it.
type tool struct {
	row
	def    Definition // without its schema
	inputs []argument
	Operation
}

// payload is the tool's own part of an answer: a pointer to a struct of JSON fields, or nil
// for none.
type payload interface {
	// text writes the same for a model, which reads nothing else.
	text(b *words)
}

// Outcome is the part that all answers have in common.
type Outcome struct {
	Success bool     `json:"success"`           // false if something went wrong; error says what
	Runtime string   `json:"runtime"`           // name of the runtime that the call used; empty if none could be chosen
	Warning string   `json:"warning,omitempty"` // something to know before you continue, such as a new kernel without the old variables
	Error   *Problem `json:"error,omitempty"`
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
}](s spec, do func(ctx context.Context, c *call, args A) (PP, error)) tool {
	args := reflect.TypeFor[A]()
	return tool{
		inputs: argumentsOf(args), def: Definition{Title: s.title, Description: s.description},
		Operation: Operation{Command: s.command, args: args, do: func(ctx context.Context, c *call, args targeted) (payload, error) {
			got, err := do(ctx, c, args.(A))
			if on, ok := args.(notebookArgs); ok && err != nil {
				err = c.notebookError(on.path(), err)
			}
			if got == nil {
				return nil, err
			}
			return got, err
		}},
	}
}

// arguments reads a call's arguments and finds its runtime.
func (t *tool) arguments(c *call, raw json.RawMessage) (targeted, *Problem) {
	value := reflect.New(t.args).Elem()
	notes, problem := parseArguments(t.inputs, raw, value)
	if problem != nil {
		return nil, problem
	}
	c.warnings = append(c.warnings, notes...)
	given, needless := value.Interface().(targeted), t.has(local)
	if n, ok := given.(interface{ emptyPath() bool }); ok {
		needless = needless || n.emptyPath() // a tab needs no runtime, and nothing else has no path
	}
	return given, c.resolve(given.runtime(), needless)
}

// call is one tool call in progress. Only one goroutine may use it.
type call struct {
	*Relay
	target    runtimes.Runtime
	asked     string        // the runtime argument; empty for the default one
	hold      time.Duration // how long it may wait for a run
	most      time.Duration // how long a patient call may; at least hold
	started   time.Time
	turn      turn
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

// release frees what was held for the answer.
func (c *call) release() {
	c.free(c.displayed)
	c.held.Done()
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
	defer func() { c.turn.leave() }()
	defer c.release()
	result, made := c.perform(ctx, r.tools[q.Tool], q)
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

// backgroundHost is the name of the host that moves a long call to the background, works on, and
// shows the model the answer when it comes: Claude Code, after two minutes.
const backgroundHost = "claude-code"

// perform handles turns, time limits, progress and panics, and turns every outcome into an answer.
func (c *call) perform(ctx context.Context, t tool, q Request) (a Result, made bool) {
	defer func() {
		c.progress.stop()
		if p := recover(); p != nil {
			c.cfg.Log.Error("panic in a tool", "tool", t.def.Name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.sending = nil
			a, made = c.answer(nil, internalProblem(fmt.Sprintf("the relay failed in %s", t.def.Name))), true
		}
	}()
	args, problem := t.arguments(c, q.Arguments)
	var ok bool
	if c.turn, ok = c.turns.take(ctx, c.target.Name); !ok {
		return Result{}, false
	}
	c.started, c.progress = time.Now(), startProgress(q.Progress)
	limit, release := c.takeHold(t.has(patient))
	defer release()
	ctx, done := context.WithTimeout(ctx, limit)
	defer done()
	var got payload
	if ctx.Err() != nil {
		problem = cancelledProblem
	} else if c.remind(ctx); problem == nil {
		var err error
		if got, err = t.do(client.WithReachLimit(ctx), c, args); err != nil {
			problem = problemOf(err)
		}
		if problem != nil && problem.arrived && !t.has(readOnly) {
			problem = problem.copy()
			problem.Message += "; what was asked for may have been done nevertheless"
		}
	}
	if problem != nil {
		c.cfg.Log.Info("tool call", "tool", t.def.Name, "runtime", c.target.Name, "code", problem.Code, "dur", time.Since(c.started))
	}
	return c.answer(got, problem), true
}

// takeHold sets how long the call may wait for a run, which is less if many calls of its runtime wait
// already, and returns how long it may take in all.
func (c *call) takeHold(patient bool) (limit time.Duration, release func()) {
	c.hold, limit = c.cfg.Hold, c.cfg.Hold
	if release = c.turn.hold(); release == nil {
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

// shown applies to every string of an answer: it makes names of files, and other text from
// outside without a special rule, plain.
var shown = map[string]plain.Rule{"": plain.Text}

// beforeSending must be called right before the answer is sent.
func (c *call) beforeSending() {
	if c.sending != nil {
		c.sending()
	}
	for _, r := range c.reminders {
		c.markGivenUp(r.requestID, r.ended)
	}
}

// answer assembles an answer: text and pictures, and JSON if a person's setting asks for it. A
// host shows the model either the text or the JSON, so a model reads the text only without JSON.
func (c *call) answer(got payload, problem *Problem) Result {
	out := Outcome{Success: problem == nil, Runtime: c.target.Name, Warning: strings.Join(c.warnings, " "), Error: inExtension(c.cfg.PairingField, problem.copy())}
	plain.Deep(&out, shown)
	plain.Deep(&got, shown)
	var structured json.RawMessage
	if c.cfg.Structured {
		var err error
		if structured, err = merge(out, got); err != nil {
			out = Outcome{Runtime: c.target.Name, Error: internalProblem("encoding the answer: " + err.Error())}
			got, c.pictures = nil, nil
			structured, _ = merge(out, nil)
		}
	}
	var b words
	for _, r := range c.reminders {
		b.WriteString(r.text)
	}
	out.text(&b)
	if got != nil {
		got.text(&b)
	}
	out.trace(&b)
	limit := maxTextRunes
	if short, ok := got.(interface{ maxText() int }); ok {
		limit = short.maxText()
	}
	text := b.text(limit)
	c.pictures = slices.DeleteFunc(c.pictures, func(p render.Picture) bool { return len(p.Data) > c.largestPicture() })
	a := Result{Structured: structured}
	a.Text, a.Pictures = fitPictures(text, c.pictures, len(structured))
	// Some hosts drop the pictures of an error, or show them to the model as base64. So an answer
	// with a picture is no error to the host; its text still begins with the error.
	a.IsError = out.Error != nil && len(a.Pictures) == 0
	return a
}

// readsPicturesAsText are the clients that give their model the base64 of a picture as text.
var readsPicturesAsText = []string{"google-adk", "ai-sdk-mcp-client"}

// largestPicture is how many bytes of a picture the call's answer may have. Of larger ones the text
// names the files.
func (c *call) largestPicture() int {
	switch {
	case c.cfg.Pictures != 0:
		return c.cfg.Pictures
	case slices.Contains(readsPicturesAsText, c.client):
		return -1
	}
	return math.MaxInt
}

// fitPictures returns the pictures that fit into a result beside a text and used bytes, in order, and
// the text, which says how many do not. It prefers the newest ones.
func fitPictures(text string, pictures []render.Picture, used int) (string, []render.Picture) {
	first := len(pictures)
	if first > 0 {
		used += jsonLen(text)
	}
	for first > 0 {
		size := len(pictures[first-1].Data)*4/3 + 200
		if used+size > maxResultBytes {
			break
		}
		used += size
		first--
	}
	if first > 0 {
		text = plain.Count(first, "picture") + " did not fit into this result; the files are named below.\n" + text
	}
	return text, pictures[first:]
}

// merge encodes what answers have in common and the payload as one JSON object.
func merge(out any, got payload) (json.RawMessage, error) {
	a, err := json.Marshal(out)
	if err != nil || got == nil {
		return a, err
	}
	b, err := json.Marshal(got)
	switch {
	case err != nil || len(b) <= len("{}"):
		return a, err
	case len(a) <= len("{}"):
		return b, nil
	}
	a[len(a)-1] = ','
	return append(a, b[1:]...), nil
}

func jsonLen(s string) int {
	b, _ := json.Marshal(s)
	return len(b)
}

func (o Outcome) text(b *words) {
	if o.Error != nil {
		fmt.Fprintf(b, "Error (%s): %s\n", o.Error.Code, o.Error.Message)
		if o.Error.Hint != "" {
			fmt.Fprintf(b, "Next step: %s\n", o.Error.Hint)
		}
	}
	if o.Warning != "" {
		fmt.Fprintf(b, "Warning: %s\n", o.Warning)
	}
}

// trace adds the traceback, after all that the code printed before it.
func (o Outcome) trace(b *words) {
	if o.Error != nil {
		b.quote("traceback", strings.TrimRight(o.Error.Traceback, "\n"))
	}
}

// fit returns the first items, as many as a model's answer has room for; a person gets all.
func fit[T any](c *call, items []T) []T {
	if c.person != nil {
		return items
	}
	return firsts(items)
}

// firsts is fitList for callers that need not know whether it dropped any.
func firsts[T any](items []T) []T {
	kept, _ := fitList(items)
	return kept
}

// fitList returns the first items whose JSON fits into maxListBytes, and whether it dropped
// any.
func fitList[T any](items []T) (kept []T, cut bool) {
	used := 0
	for i := range items {
		b, err := json.Marshal(items[i])
		if used += len(b) + 1; err != nil || used > maxListBytes {
			return items[:i:i], true
		}
	}
	if items == nil {
		items = []T{}
	}
	return items, false
}
