package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/shared/contract"
)

// noRuns is what a command says that finds no runs.
const noRuns = "no runs yet: run code with `colab-relay run FILE`, or let an agent use the tools"

// runHistory is the history of runs, or none if the settings switch it off.
type runHistory struct{ *history.Store }

// openHistory returns the history that the settings name. A caller must close it after its
// last request to a VM.
func openHistory(cfg config.Config, log *slog.Logger) runHistory {
	if cfg.HistoryDir == "" {
		return runHistory{}
	}
	return runHistory{history.New(history.Config{Dir: cfg.HistoryDir, MaxBytes: cfg.HistoryBytes, Log: log})}
}

// record is runtimes.Config.Record.
func (h runHistory) record() func(runtime string) client.Recorder {
	if h.Store == nil {
		return nil
	}
	return h.Record
}

// filler is remoterun.LogOptions.Fill for a run.
func (h runHistory) filler(id string) func(events []contract.Event) []contract.Event {
	if h.Store == nil {
		return nil
	}
	return h.Filler(id)
}

// close ends the recording, and tells the person if something is not kept.
func (h runHistory) close(w io.Writer) {
	if h.Store == nil {
		return
	}
	if err := h.Close(); err != nil {
		fmt.Fprintf(w, "colab-relay: a run, or part of one, could not be saved in the history on this computer: %v\n", err)
	}
}

// runs returns all runs of the history, none if it is off.
func (h runHistory) runs() ([]history.Run, error) {
	if h.Store == nil {
		return nil, nil
	}
	return h.List()
}

// pastRuns is what the commands about past runs use: the history, and the VMs, which may be
// gone.
type pastRuns struct {
	history runHistory
	pool    *runtimes.Pool
	store   *pairing.Store
	getenv  func(string) string
	std     terminal.Streams

	mu      sync.Mutex
	reached map[string]*client.Client // by runtime; nil for one that did not answer
}

// openPastRuns returns the past runs that the settings describe. A caller must close them.
func openPastRuns(set *config.Settings, std terminal.Streams) (*pastRuns, error) {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return nil, err
	}
	kept := openHistory(cfg, nil)
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Record: kept.record(), Transport: vmTransport(*set, cfg)})
	return &pastRuns{history: kept, pool: pool, store: cfg.Pairings, getenv: set.Get, std: std, reached: map[string]*client.Client{}}, nil
}

func (p *pastRuns) close() {
	p.history.close(p.std.Err)
	p.pool.Close()
}

// paired returns the names of all runtimes that a call can use.
func (p *pastRuns) paired() []string {
	var names []string
	if all, err := p.store.List(); err == nil {
		for _, r := range all {
			names = append(names, r.Name)
		}
	}
	if pairing.InEnvironment(p.getenv) {
		names = append(names, pairing.EnvName)
	}
	return names
}

// listTime bounds how long a list waits for a VM: the history alone is useful too.
const listTime = 4 * time.Second

// live asks the VMs of these runtimes for their runs, all at once. It notes those that do not
// answer in one line each.
func (p *pastRuns) live(ctx context.Context, names []string) []runlist.VM {
	found := make([]*runlist.VM, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() {
			vm, err := p.pool.Resolve(name)
			if err == nil {
				found[i], err = list(ctx, vm)
			}
			if err != nil {
				p.note("the VM of runtime %q is not listed: %v", name, err)
			}
		})
	}
	wait.Wait()
	var all []runlist.VM
	for _, vm := range found {
		if vm != nil {
			all = append(all, *vm)
		}
	}
	return all
}

func list(ctx context.Context, vm tools.Runtime) (*runlist.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	got, err := vm.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return nil, err
	}
	return &runlist.VM{Runtime: vm.Name, InstanceID: vm.Client.InstanceID(), Executions: got.Executions}, nil
}

// reach returns a client for a runtime whose VM answers, or nil after a note. It tries each
// runtime once.
func (p *pastRuns) reach(ctx context.Context, name string) *client.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, tried := p.reached[name]; tried {
		return c
	}
	p.reached[name] = nil
	vm, err := p.pool.Resolve(name)
	if err == nil {
		err = reach(ctx, vm.Client)
	}
	if err != nil {
		p.note("the VM of runtime %q does not answer, so only what this computer kept is used: %v", name, err)
		return nil
	}
	p.reached[name] = vm.Client
	return vm.Client
}

func (p *pastRuns) note(format string, args ...any) {
	fmt.Fprintln(p.std.Err, plain.Line("note: "+fmt.Sprintf(format, args...)))
}

// settle records the end of runs that ended while nobody followed them.
func (p *pastRuns) settle(kept []history.Run, vms []runlist.VM) {
	for _, vm := range vms {
		for _, e := range vm.Executions {
			if e.Status.Finished() && slices.ContainsFunc(kept, func(r history.Run) bool {
				return r.ExecutionID == e.ExecutionID && r.InstanceID == vm.InstanceID && !r.Status.Finished()
			}) {
				p.history.Record(vm.Runtime).Answered(vm.InstanceID, e)
			}
		}
	}
}
