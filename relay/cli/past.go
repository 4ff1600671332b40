package cli

import (
	"context"
	"fmt"
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
	"colabrelay/shared/contract"
)

// PastRuns is what the commands about past runs use: the history, and the VMs, which may be
// gone.
type PastRuns struct {
	History *history.Store
	pool    *runtimes.Pool
	store   *pairing.Store
	getenv  func(string) string
	std     terminal.Streams
	reached map[string]*client.Client // by runtime; nil for one that did not answer
}

// OpenPastRuns returns the past runs that the settings describe. A caller must close them.
func OpenPastRuns(set *config.Settings, std terminal.Streams) (*PastRuns, error) {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return nil, err
	}
	kept := OpenHistory(cfg, nil)
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Record: kept.Record, Transport: VMTransport(*set, cfg)})
	return &PastRuns{History: kept, pool: pool, store: cfg.Pairings, getenv: set.Get, std: std, reached: map[string]*client.Client{}}, nil
}

// Close waits for what is recorded.
func (p *PastRuns) Close() {
	FinishHistory(p.History, p.std.Err)
	p.pool.Close()
}

// entries returns the runs of a runtime, of all if it is empty, and records the end of those that
// ended while nobody followed them.
func (p *PastRuns) entries(ctx context.Context, runtime string) ([]runlist.Entry, error) {
	kept, err := p.History.List()
	if err != nil {
		return nil, err
	}
	kept = runlist.OfRuntime(kept, runtime)
	names := p.paired()
	if runtime != "" {
		if !slices.Contains(names, runtime) && len(kept) == 0 {
			_, err := pairing.Resolve(runtime, p.getenv, p.store)
			return nil, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name != runtime })
	}
	vms := p.live(ctx, names, kept)
	for _, vm := range vms {
		for _, e := range vm.Executions {
			if e.Status.Finished() && slices.ContainsFunc(kept, func(r history.Run) bool {
				return r.ExecutionID == e.ExecutionID && r.InstanceID == vm.InstanceID && !r.Status.Finished()
			}) {
				p.History.Record(vm.Runtime).Answered(vm.InstanceID, e)
			}
		}
	}
	return runlist.Merge(kept, vms, time.Now()), nil
}

// paired returns the names of all runtimes that a call can use.
func (p *PastRuns) paired() []string {
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

const (
	listTime     = 4 * time.Second // for a VM's list, and for what is not in it: the history alone is useful too
	listPatience = time.Second     // with a VM whose connection breaks each time
	maxAsked     = 20              // runs of a VM that are not in its list
)

// live asks the VMs of these runtimes for their runs, all at once. It notes those that do not
// answer in one line each.
func (p *PastRuns) live(ctx context.Context, names []string, kept []history.Run) []runlist.VM {
	found := make([]runlist.VM, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() {
			vm, err := p.pool.Resolve(name)
			if err == nil {
				found[i], err = list(ctx, vm, kept)
			}
			if err != nil {
				p.Note("the VM of runtime %q is not listed: %v", name, err)
			}
		})
	}
	wait.Wait()
	return slices.DeleteFunc(found, func(vm runlist.VM) bool { return vm.Runtime == "" })
}

// list returns the runs of a VM, with those whose end this computer has not seen, and which are too
// old for the VM's list.
func list(ctx context.Context, vm runtimes.Runtime, kept []history.Run) (runlist.VM, error) {
	ctx, cancel := context.WithTimeout(client.WithPatience(ctx, listPatience), listTime)
	defer cancel()
	got, err := vm.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return runlist.VM{}, err
	}
	found := runlist.VM{Runtime: vm.Name, InstanceID: vm.Client.InstanceID(), Executions: got.Executions}
	asked := 0
	for _, r := range kept {
		listed := func(e contract.Execution) bool { return e.ExecutionID == r.ExecutionID }
		if r.Status.Finished() || r.InstanceID != found.InstanceID || slices.ContainsFunc(got.Executions, listed) || asked == maxAsked || ctx.Err() != nil {
			continue
		}
		asked++
		if e, err := vm.Client.Execution(ctx, r.ExecutionID, 0, 0, 1); err == nil {
			e.Events = nil
			found.Executions = append(found.Executions, e)
		}
	}
	return found, nil
}

// Reach returns a client for a runtime whose VM answers, or nil after a note. It tries each
// runtime once.
func (p *PastRuns) Reach(ctx context.Context, name string) *client.Client {
	if c, tried := p.reached[name]; tried {
		return c
	}
	p.reached[name] = nil
	vm, err := p.pool.Resolve(name)
	if err == nil {
		err = Reach(ctx, vm.Client)
	}
	if err != nil {
		p.Note("the VM of runtime %q does not answer, so only what this computer kept is used: %v", name, err)
		return nil
	}
	p.reached[name] = vm.Client
	return vm.Client
}

// Note tells the person something beside the answer.
func (p *PastRuns) Note(format string, args ...any) {
	fmt.Fprintln(p.std.Err, plain.Line("note: "+fmt.Sprintf(format, args...)))
}
