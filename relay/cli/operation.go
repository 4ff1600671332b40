package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/bridge"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/op"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/relay/vm"
	"colabrelay/shared/contract"
)

// Operations returns the commands below parent that are operations; "" is the program itself.
func Operations(set *config.Settings, std terminal.Streams, parent string) (all []*cobra.Command) {
	byName := map[string][]op.Operation{}
	for _, o := range op.Commands() {
		byName[o.Name] = append(byName[o.Name], o)
	}
	for _, o := range op.Commands() {
		above, own, below := strings.Cut(o.Name, " ")
		if !below {
			above, own = "", o.Name
		}
		if same := byName[o.Name]; len(same) > 0 && above == parent {
			c := &operationCommand{set: set, std: std, cmd: &cobra.Command{Use: own, ValidArgsFunction: cobra.NoFileCompletions}}
			all = append(all, c.made(same))
			delete(byName, o.Name)
		}
	}
	return all
}

// operationCommand is the command of operations with one name. Each but the first takes more
// arguments than the one before.
type operationCommand struct {
	set         *config.Settings
	std         terminal.Streams
	cmd         *cobra.Command
	all         []operation
	runtime     string
	yes, asJSON bool
}

type operation struct {
	op.Operation
	args      any
	positions []*op.Argument
}

// made completes the command.
func (c *operationCommand) made(same []op.Operation) *cobra.Command {
	first, cmd := same[0], c.cmd
	cmd.GroupID, cmd.Short, cmd.Long, cmd.Example = first.Group, first.Short, first.Long, first.Examples
	least, most := 0, 0
	for i, o := range same {
		one := operation{Operation: o}
		var given []*op.Argument
		one.args, given = o.Arguments()
		one.positions = AddArguments(cmd, given)
		for at, a := range one.positions {
			switch {
			case at < most:
				continue
			case i > 0 || a.Optional:
				cmd.Use += " [" + a.Name + "]"
			default:
				cmd.Use += " " + a.Name
				least++
			}
			most++
			if strings.HasSuffix(a.Name, "...") {
				most = manyArguments
			}
		}
		c.all = append(c.all, one)
	}
	last := c.all[len(c.all)-1].positions
	cmd.Args, cmd.ValidArgsFunction, cmd.RunE = Arguments(least, most), CompleteArguments(c.set, last, cobra.ShellCompDirectiveNoFileComp), c.run
	if !first.Local {
		AddRuntimeFlag(cmd, &c.runtime)
	}
	if first.Setting != "" {
		c.set.AddFlags(cmd.Flags(), first.Setting)
	}
	AddJSONFlag(cmd, &c.asJSON)
	if first.Confirm {
		cmd.Long += "\nIt asks for confirmation first; without a terminal, --yes is required."
		cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	}
	return cmd
}

// manyArguments bounds those of a command that takes any number.
const manyArguments = 1000

// AddArguments adds the flags of an operation, and returns the arguments that have a position.
func AddArguments(cmd *cobra.Command, given []*op.Argument) (positions []*op.Argument) {
	for _, a := range given {
		if a.Position {
			positions = append(positions, a)
			continue
		}
		flag := cmd.Flags().VarPF(a, a.Name, a.Short, a.Usage)
		if a.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		if flag.DefValue == "-1" { // the usage says what that means
			flag.DefValue = ""
		}
		offer := cobra.FixedCompletions(a.Choices, cobra.ShellCompDirectiveNoFileComp)
		switch {
		case a.Complete == "runtimes":
			offer = CompleteRuntimes
		case a.Choices == nil:
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(a.Name, offer) // the flag exists
	}
	return positions
}

// CompleteArguments offers what the arguments may be, and what comes after them.
func CompleteArguments(set *config.Settings, positions []*op.Argument, after cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) >= len(positions) {
			return nil, after
		}
		switch positions[len(args)].Complete {
		case "files":
			return nil, cobra.ShellCompDirectiveDefault
		case "notebooks":
			return []string{"ipynb"}, cobra.ShellCompDirectiveFilterFileExt
		case "cells":
			return completeCells(args[0]), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		case "runs":
			return completeRuns(set, 0, false)(cmd, args, typed)
		case "vms":
			m := NewVMs(*set, config.Load(*set), "", nil)
			defer m.Close()
			names = m.Names()
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// PrintAnswer prints the answer of an operation, as JSON if that is asked for, or returns its error.
// A run that goes on is an answer too.
func PrintAnswer(std terminal.Streams, answer op.Answer, err error, asJSON bool) error {
	if asJSON && (err == nil || errors.Is(err, runlist.ErrStillRunning)) {
		answer.PrintNotes()
		return errors.Join(err, PrintJSON(std.Out, answer))
	}
	return cmp.Or(err, answer.Print())
}

func (c *operationCommand) run(cmd *cobra.Command, args []string) error {
	chosen := c.all[0]
	for _, other := range c.all[1:] {
		if len(args) >= len(other.positions) {
			chosen = other
		}
	}
	if last := len(chosen.positions) - 1; len(args) > last+1 { // of what may be given several times
		args = append(args[:last:last], strings.Join(args[last:], "\n"))
	}
	named := Named(c.runtime)
	for i, text := range args {
		if chosen.positions[i].Complete == "runs" {
			named = OfRun(c.runtime, args[i:])
		}
		if text == "" {
			return Usagef("%s is empty", chosen.positions[i].Name)
		}
		if err := chosen.positions[i].Set(text); err != nil {
			return Usagef("%s %w", chosen.positions[i].Name, err)
		}
	}
	if chosen.Confirm && !c.yes && !terminal.Is(c.std.In) {
		confirmed := cmd.CommandPath() + " --yes"
		if c.runtime != "" {
			confirmed += " --runtime " + plain.ShellWord(c.runtime)
		}
		return Usagef("nothing was done: confirm it with `%s`", confirmed)
	}
	return WithPerson(cmd.Context(), c.set, c.std, named, chosen.Operation, func(ctx context.Context, by op.Person) error {
		ask := by.Confirm
		by.Confirm = func(question string) bool { return c.yes || ask(question) }
		answer, err := chosen.Do(ctx, by, chosen.args)
		return PrintAnswer(c.std, answer, err, c.asJSON)
	})
}

// WithPerson calls use with what a person has for an operation: a VM that answers, unless the
// operation is local.
func WithPerson(ctx context.Context, set *config.Settings, std terminal.Streams, choose func(*history.Store) string, o op.Operation, use func(context.Context, op.Person) error) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	var opened *vm.Manager // if the operation wants it
	defer func() {
		if opened != nil {
			opened.Close()
		}
	}()
	newest := new(lastAttempt)
	by := op.Person{
		Config:  op.Config{CheckpointDir: cfg.CheckpointDir, TransferDir: cfg.TransferDir, Keep: cfg.Keep, Version: Version},
		Streams: std,
		Confirm: func(question string) bool { return terminal.Confirm(ctx, std, question) },
		VMs: func(executor string) *vm.Manager {
			opened = NewVMs(*set, cfg, executor, nil)
			return opened
		},
		Runs: func(ctx context.Context, runtime string) ([]runlist.Entry, error) {
			past, err := OpenPastRuns(set, std)
			if err != nil {
				return nil, err
			}
			defer past.Close()
			return past.entries(ctx, runtime)
		},
		PagePort: cfg.PagePort, Bridge: func() *bridge.Bridge { return NewBridge(*set, cfg.Pairings, nil) },
		Transfer: func(name string, move func(report func(transfer.Progress)) (transfer.Result, error)) (transfer.Result, error) {
			return showTransfer(ctx, std, name, newest, move)
		},
	}
	var err error
	switch {
	case o.Local:
		by.LastSeen.Load = cfg.Pairings.LastSeen
		pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Transport: VMTransport(*set, cfg)})
		defer pool.Close()
		by.Resolve = pool.Resolve
		err = use(ctx, by)
	default:
		attempt := (&terminal.Outage{Out: std.Err}).Attempt
		if o.Bulk { // whose progress tells of an outage
			attempt = func(err error) { newest.Store(&err) }
		} else {
			ctx = Briefly(ctx)
		}
		err = withVM(ctx, set, choose, std, attempt, func(vm liveVM) error {
			by.Ask = func(ctx context.Context, executionID string, prompt contract.Event) (string, error) {
				return remoterun.Ask(ctx, vm.Name, executionID, prompt, std)
			}
			by.Runtime, by.LastSeen = vm.Runtime, vm.pool.LastSeen(runtimes.People)
			return use(ctx, by)
		})
	}
	if _, wrong := errors.AsType[*op.ArgumentError](err); wrong {
		return AsUsage(err)
	}
	if opened != nil && errors.Is(err, ErrNotRelease) {
		return NeedsExecutor(err)
	}
	return err
}

// ShowTransfer runs a transfer and shows its progress.
func ShowTransfer(ctx context.Context, std terminal.Streams, name string, move func(report func(transfer.Progress)) (transfer.Result, error)) (transfer.Result, error) {
	return showTransfer(ctx, std, name, new(lastAttempt), move)
}

// lastAttempt is the outcome of the newest attempt to reach the VM: a transfer retries, and reports
// an error only when it ends.
type lastAttempt = atomic.Pointer[error]

// showTransfer is ShowTransfer; newest tells of an outage.
func showTransfer(ctx context.Context, std terminal.Streams, name string, newest *lastAttempt, move func(report func(transfer.Progress)) (transfer.Result, error)) (transfer.Result, error) {
	var meter progress.Meter
	stop := terminal.Watch(std.Err, func() string {
		var failure error
		if last := newest.Load(); last != nil {
			failure = *last
		}
		line := ProgressLine(&meter, failure, time.Now())
		if p, _ := meter.Last(); terminal.Is(std.Err) && p.Total > 0 {
			n := int(min(p.Done, p.Total) * barWidth / p.Total)
			line = "[" + strings.Repeat("=", n) + strings.Repeat(" ", barWidth-n) + "] " + line
		}
		return shortName(name) + ": " + line
	})
	r, err := move(meter.Report)
	stop()
	p, _ := meter.Last()
	if err != nil && ctx.Err() != nil {
		return r, fmt.Errorf("stopped at %s: run the same command again to resume", progress.Share(p.Done, p.Total))
	}
	if _, lost := errors.AsType[*client.Error](err); lost {
		err = fmt.Errorf("%w; it stopped at %s: run the same command again to resume", err, progress.Share(p.Done, p.Total))
	}
	return r, err
}

const (
	maxShownName = 30 // runes of a file's name before its progress
	barWidth     = 20
)

// shortName is the last part of a path, shortened.
func shortName(path string) string {
	path = strings.TrimRight(path, `/\`)
	name := plain.Line(path[strings.LastIndexAny(path, `/\`)+1:])
	if short := []rune(name); len(short) > maxShownName {
		return string(short[:maxShownName-1]) + "…"
	}
	return name
}
