package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/relay/vm"
)

// Operations returns the commands below parent that are operations; "" is the program itself.
func Operations(set *config.Settings, std terminal.Streams, parent string) (all []*cobra.Command) {
	byName := map[string][]tools.Operation{}
	for _, o := range tools.Commands() {
		byName[o.Name] = append(byName[o.Name], o)
	}
	for _, o := range tools.Commands() {
		above, own, below := strings.Cut(o.Name, " ")
		if !below {
			above, own = "", o.Name
		}
		if same := byName[o.Name]; len(same) > 0 && above == parent {
			all = append(all, operationCommand(set, std, own, same))
			delete(byName, o.Name)
		}
	}
	return all
}

// operationCommand returns the command of operations with one name. Each but the first takes more
// arguments than the one before.
func operationCommand(set *config.Settings, std terminal.Streams, name string, same []tools.Operation) *cobra.Command {
	type operation struct {
		tools.Operation
		args      any
		positions []*tools.Argument
	}
	first := same[0]
	cmd := &cobra.Command{
		Use: name, GroupID: first.Group, Short: first.Short, Long: first.Long, Example: first.Examples,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	by := tools.Person{Streams: std}
	runtime, yes := "", false
	var all []operation
	least, most := 0, 0
	for i, o := range same {
		op := operation{Operation: o}
		var given []*tools.Argument
		op.args, given = o.Arguments()
		for _, a := range given {
			if !a.Position {
				if flag := cmd.Flags().VarPF(a, a.Name, a.Short, a.Usage); a.Type() == "bool" {
					flag.NoOptDefVal = "true"
				}
				continue
			}
			if a.Complete == "vms" {
				cmd.ValidArgsFunction = completeVMs(set)
			}
			op.positions = append(op.positions, a)
			switch {
			case len(op.positions) <= most:
				continue
			case i > 0 || a.Optional:
				cmd.Use += " [" + a.Name + "]"
			default:
				cmd.Use += " " + a.Name
				least++
			}
			most++
		}
		all = append(all, op)
	}
	cmd.Args = Arguments(least, most)
	if !first.Local {
		AddRuntimeFlag(cmd, &runtime)
	}
	if first.Setting != "" {
		set.AddFlags(cmd.Flags(), first.Setting)
	}
	AddJSONFlag(cmd, &by.JSON)
	if first.Confirm {
		cmd.Long += "\nIt asks for confirmation first; without a terminal, --yes is required."
		cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		op := all[0]
		for _, other := range all[1:] {
			if len(args) >= len(other.positions) {
				op = other
			}
		}
		for i, text := range args {
			if text == "" {
				return Usagef("%s is empty", op.positions[i].Name)
			}
			if err := op.positions[i].Set(text); err != nil {
				return Usagef("%s %w", op.positions[i].Name, err)
			}
		}
		if op.Confirm && !yes && !terminal.Is(std.In) {
			confirmed := cmd.CommandPath() + " --yes"
			if runtime != "" {
				confirmed += " --runtime " + plain.ShellWord(runtime)
			}
			return Usagef("nothing was done: confirm it with `%s`", confirmed)
		}
		by.Confirm = func(question string) bool { return yes || terminal.Confirm(cmd.Context(), std, question) }
		if op.Local {
			return doLocally(cmd.Context(), set, op.Operation, by, op.args)
		}
		return WithVM(cmd.Context(), set, Named(runtime), std, func(vm LiveVM) error {
			by.Runtime, by.LastSeen = vm.Runtime, vm.pool.LastSeen(runtimes.People)
			return op.Do(Briefly(cmd.Context()), by, op.args)
		})
	}
	return cmd
}

// doLocally does an operation that needs no VM that answers.
func doLocally(ctx context.Context, set *config.Settings, o tools.Operation, by tools.Person, args any) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	by.CheckpointDir = cfg.CheckpointDir
	var vms *vm.Manager // opened if the operation wants it
	by.VMs = func(executor string) *vm.Manager {
		vms = NewVMs(*set, cfg, executor, nil)
		return vms
	}
	defer func() {
		if vms != nil {
			vms.Close()
		}
	}()
	err := o.Do(ctx, by, args)
	if _, wrong := errors.AsType[*tools.ArgumentError](err); wrong {
		return AsUsage(err)
	}
	if errors.Is(err, ErrNotRelease) {
		return NeedsExecutor(err)
	}
	return err
}
