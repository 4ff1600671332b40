package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

// vmUp is a call of `colab-relay vm up`.
type vmUp struct {
	vm.Request
	gpu, tunnel string
	executor    string // file
	json        bool
}

func vmUpCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	u := vmUp{Request: vm.Request{Name: vm.DefaultName}}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a VM with the executor, and pair this computer with it",
		Long: "Start a VM, start the executor there, and pair this computer with it. The accelerators of --gpu are tried in turn; without --gpu, the VM has none, and CPU can also stand in the list.\n" +
			"The same command goes on with a start that was interrupted, and starts the executor again if it has ended. If the VM runs and its executor answers, nothing is changed.\n" +
			"The executor is reached through Google's proxy where that works, else by ngrok if NGROK_AUTHTOKEN is set, else by cloudflared if the VM has that program. --tunnel chooses one of them; without NGROK_AUTHTOKEN, --backend cli needs --tunnel cloudflared.",
		Example: "  colab-relay vm up\n  colab-relay vm up --gpu T4,L4,A100 --high-ram\n  colab-relay vm up --gpu A100 --name training",
		Args:    arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.run(cmd.Context(), set, std) },
	}
	fs := cmd.Flags()
	fs.StringVar(&u.gpu, "gpu", "", "the `ACCELERATORS` to try: T4, L4, G4, A100, H100, V5E1, V6E1 or CPU, separated by commas")
	fs.BoolVar(&u.HighRAM, "high-ram", false, "ask for a VM with more memory")
	fs.StringVar(&u.Name, "name", u.Name, "`NAME` of the VM and of the runtime")
	fs.StringVar(&u.Backend, "backend", "", "how the VM is started: `cli` or api (default the one of `colab-relay vm login`)")
	fs.StringVar(&u.tunnel, "tunnel", "", "how the executor is reached: `proxy`, ngrok or cloudflared (default the first that works)")
	fs.StringVar(&u.executor, "executor", "", "upload this `FILE` instead of the executor of the release")
	addJSONFlag(cmd, &u.json)
	return cmd
}

func (u *vmUp) run(ctx context.Context, set *config.Settings, std terminal.Streams) (err error) {
	if u.Ladder, err = vm.ParseLadder(u.gpu); err != nil {
		return usageError{fmt.Errorf("--gpu: %w", err)}
	}
	if u.Way, err = vm.ParseWay(u.tunnel); err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
	if u.Backend != "" && u.Backend != backendCLI && u.Backend != backendAPI {
		return usagef("--backend %q: use cli or api", u.Backend)
	}
	if u.executor != "" { // not after minutes
		if _, err := vm.FileProgram(u.executor, ""); err != nil {
			return err
		}
	}
	return withVMs(set, u.executor, func(m *vm.Manager) error {
		started, err := m.Up(ctx, u.Request, func(step string) { fmt.Fprintln(std.Err, plain.Line(step)+" ...") })
		if still, ok := errors.AsType[*vm.StartingError](err); ok {
			return fmt.Errorf("interrupted while VM %q was starting (%s): %w", still.Name, still.Step, vm.ErrInterrupted)
		}
		if errors.Is(err, errNotRelease) {
			return fmt.Errorf("%w; or name an executor for Linux with --executor, as with bin/executor of `make build`", err)
		}
		if err != nil {
			return err
		}
		if u.json {
			return printJSON(std.Out, started)
		}
		fmt.Fprintf(std.Out, "VM %q (%s) runs and is paired as runtime %q, reached by %s.\n", started.Name, hardware(started), started.Name, started.Via)
		fmt.Fprintf(std.Err, "It runs, and may use compute units, until `colab-relay vm down %s` or until Colab ends it.\n%s\n", started.Name, vm.KeepText)
		return nil
	})
}
