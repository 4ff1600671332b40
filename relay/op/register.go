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
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/transfer"
	"colabrelay/relay/vm"
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
