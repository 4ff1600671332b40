package runs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/export"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// psOptions are the flags of `colab-relay ps`.
type psOptions struct {
	runtime string
	limit   int // 0 for none
	all     bool
	asJSON  bool
}

// PsCommand returns `colab-relay ps`.
func PsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := psOptions{}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List runs, present and past",
		Long: "List the runs of all runtimes, newest first: those in this computer's history, and those on the VMs. It also works after a VM is gone. Ids are shortened; --json prints them whole.\n" +
			"A question mark after a status means that it may have changed since: the VM does not answer, or is gone.\n" +
			"Rounds of chunked runs that have ended, and other code that the relay runs for itself, are listed only with --all.",
		Example: "  colab-relay ps\n  colab-relay ps -n 5 --runtime work\n  colab-relay ps --all --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.limit < 1 {
				return cli.Usagef("-n %d: must be 1 or more", o.limit)
			}
			if o.all && !cmd.Flags().Changed("number") {
				o.limit = 0
			}
			return o.list(cmd.Context(), set, std)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().IntVarP(&o.limit, "number", "n", 20, "list at most `NUMBER` runs")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "list all runs, also those that the relay made for itself")
	cli.AddRuntimeFlagFor(cmd, &o.runtime, "list only the runs of the runtime `NAME`")
	cli.AddJSONFlag(cmd, &o.asJSON)
	return cmd
}

func (o psOptions) list(ctx context.Context, set *config.Settings, std terminal.Streams) error {
	p, err := openPastRuns(set, std)
	if err != nil {
		return err
	}
	defer p.close()
	kept, err := p.history.Runs()
	if err != nil {
		return err
	}
	kept = runlist.OfRuntime(kept, o.runtime)
	names := p.paired()
	if o.runtime != "" {
		if !slices.Contains(names, o.runtime) && len(kept) == 0 {
			_, err := pairing.Resolve(o.runtime, set.Get, p.store)
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name != o.runtime })
	}
	vms := p.live(ctx, names)
	p.askForUnlisted(ctx, kept, vms)
	if p.history.Store != nil {
		p.settle(kept, vms)
	}
	return o.print(runlist.Merge(kept, vms, time.Now()), std)
}

func (o psOptions) print(all []runlist.Entry, std terminal.Streams) error {
	entries := all
	if !o.all {
		entries = runlist.OfPeople(all)
	}
	more := o.limit > 0 && len(entries) > o.limit
	if more {
		entries = entries[:o.limit]
	}
	if o.asJSON {
		return cli.PrintJSON(std.Out, struct {
			Executions []runlist.Entry `json:"executions"`
			Truncated  bool            `json:"truncated"`
		}{append([]runlist.Entry{}, entries...), more})
	}
	ids := runlist.ShortIDs(all)
	if len(entries) == 0 {
		fmt.Fprintln(std.Err, noRuns)
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "ID"}, terminal.Column{Title: "RUNTIME"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "WHEN"}, terminal.Column{Title: "TOOK", Right: true}, terminal.Column{Title: "CODE"})
	unsure := false
	for _, e := range entries {
		status := e.Status
		if e.Unsure() {
			status += "?"
			unsure = true
		}
		table.Add(ids[e.ExecutionID], e.Runtime, status, cli.When(e.CreatedAt, time.Now()), tookOf(e), codeOf(e))
	}
	if err := table.Print(std.Out); err != nil {
		return err
	}
	if unsure {
		fmt.Fprintln(std.Err, "note: a status marked ? is the last one that this computer saw; the run's VM does not answer, is gone, or no longer has the run")
	}
	if more {
		fmt.Fprintln(std.Err, "note: there are older runs; `colab-relay ps --all` lists them")
	}
	return nil
}

func codeOf(e runlist.Entry) string {
	if e.Name != "" {
		return "[" + e.Name + "] " + e.CodePreview
	}
	return e.CodePreview
}

func tookOf(e runlist.Entry) string {
	if e.ExecutionTimeSec == nil {
		return "-"
	}
	return took(*e.ExecutionTimeSec)
}

// took returns a number of seconds, which an executor sent, as people write durations.
func took(seconds float64) string {
	return export.Took(time.Duration(min(seconds, math.MaxInt32) * float64(time.Second)))
}

// noRuns is what a command says that finds no runs.
const noRuns = "no runs yet: run code with `colab-relay run FILE`, or let an agent use the tools"

// pastRuns is what the commands about past runs use: the history, and the VMs, which may be
// gone.
type pastRuns struct {
	history cli.RunHistory
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
	kept := cli.OpenHistory(cfg, nil)
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Record: kept.Recorder(), Transport: cli.VMTransport(*set, cfg)})
	return &pastRuns{history: kept, pool: pool, store: cfg.Pairings, getenv: set.Get, std: std, reached: map[string]*client.Client{}}, nil
}

func (p *pastRuns) close() {
	p.history.Finish(p.std.Err)
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

func list(ctx context.Context, vm runtimes.Runtime) (*runlist.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	got, err := vm.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return nil, err
	}
	return &runlist.VM{Runtime: vm.Name, InstanceID: vm.Client.InstanceID(), Executions: got.Executions}, nil
}

// maxAsked bounds the runs of one VM that askForUnlisted asks for.
const maxAsked = 20

// askForUnlisted adds to the lists of the VMs runs of theirs whose end this computer has not
// seen, and which are too old for the lists. It asks all VMs at once: one that does not answer
// takes no time from the others.
func (p *pastRuns) askForUnlisted(ctx context.Context, kept []history.Run, vms []runlist.VM) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var wait sync.WaitGroup
	for i := range vms {
		if vm, err := p.pool.Resolve(vms[i].Runtime); err == nil {
			wait.Go(func() { askUnlisted(ctx, vm.Client, kept, &vms[i]) })
		}
	}
	wait.Wait()
}

func askUnlisted(ctx context.Context, c *client.Client, kept []history.Run, vm *runlist.VM) {
	asked := 0
	for _, r := range kept {
		if r.Status.Finished() || r.InstanceID != vm.InstanceID || listed(*vm, r.ExecutionID) || asked == maxAsked || ctx.Err() != nil {
			continue
		}
		asked++
		if e, err := c.Execution(ctx, r.ExecutionID, 0, 0, 1); err == nil {
			e.Events = nil
			vm.Executions = append(vm.Executions, e)
		}
	}
}

func listed(vm runlist.VM, id string) bool {
	return slices.ContainsFunc(vm.Executions, func(e contract.Execution) bool { return e.ExecutionID == id })
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
		err = cli.Reach(ctx, vm.Client)
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
