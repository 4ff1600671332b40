package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/browser"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabcli"
)

// up is a call of `colab-relay vm up`.
type up struct {
	vm.Request
	gpu, tunnel string
	executor    string // file
	json        bool
}

func upCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	u := up{Request: vm.Request{Name: vm.DefaultName}}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a VM with the executor, and pair this computer with it",
		Long: "Start a VM, start the executor there, and pair this computer with it. The accelerators of --gpu are tried in turn; without --gpu, the VM has none, and the list may also contain CPU.\n" +
			"The same command goes on with a start that was interrupted, and starts the executor again if it has ended. If the VM runs and its executor answers, nothing is changed.\n" +
			"The executor is reached through Google's proxy where that works, else by ngrok if NGROK_AUTHTOKEN is set, else by cloudflared if the VM has that program. --tunnel chooses one of them; without NGROK_AUTHTOKEN, --backend cli needs --tunnel cloudflared.",
		Example: "  colab-relay vm up\n  colab-relay vm up --gpu T4,L4,A100 --high-ram\n  colab-relay vm up --gpu A100 --name training",
		Args:    cli.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.run(cmd.Context(), set, std) },
	}
	fs := cmd.Flags()
	fs.StringVar(&u.gpu, "gpu", "", "the `ACCELERATORS` to try: T4, L4, G4, A100, H100, V5E1, V6E1 or CPU, separated by commas")
	fs.BoolVar(&u.HighRAM, "high-ram", false, "ask for a VM with more memory")
	fs.StringVar(&u.Name, "name", u.Name, "`NAME` of the VM and of the runtime")
	fs.StringVar(&u.Backend, "backend", "", "how the VM is started: `cli` or api (default the one of `colab-relay vm login`)")
	fs.StringVar(&u.tunnel, "tunnel", "", "how the executor is reached: `proxy`, ngrok or cloudflared (default the first that works)")
	cli.FileFlag(fs, &u.executor, "executor", "upload this `FILE` instead of the executor of the release")
	cli.AddJSONFlag(cmd, &u.json)
	return cmd
}

func (u *up) run(ctx context.Context, set *config.Settings, std terminal.Streams) (err error) {
	if u.Accelerators, err = vm.ParseAccelerators(u.gpu); err != nil {
		return cli.Usagef("--gpu: %w", err)
	}
	if u.Way, err = vm.ParseWay(u.tunnel); err != nil {
		return cli.Usagef("--%w", err)
	}
	if u.Backend != "" && u.Backend != cli.BackendCLI && u.Backend != cli.BackendAPI {
		return cli.Usagef("--backend %q: use cli or api", u.Backend)
	}
	if u.executor != "" { // not after minutes
		if _, err := vm.FileProgram(u.executor, ""); err != nil {
			return err
		}
	}
	return cli.WithVMs(set, u.executor, func(m *vm.Manager) error {
		started, err := m.Up(ctx, u.Request, func(step string) { fmt.Fprintln(std.Err, plain.Line(step)+" ...") })
		if still, ok := errors.AsType[*vm.StartingError](err); ok {
			return fmt.Errorf("interrupted while VM %q was starting (%s): %w", still.Name, still.Step, vm.ErrInterrupted)
		}
		if errors.Is(err, cli.ErrNotRelease) {
			return cli.NeedsExecutor(err)
		}
		if err != nil {
			return err
		}
		if u.json {
			return cli.PrintJSON(std.Out, started)
		}
		fmt.Fprintf(std.Out, "VM %q (%s) runs and is paired as runtime %q, reached by %s.\n", started.Name, started.Hardware(), started.Name, started.Via)
		fmt.Fprintf(std.Err, "It runs, and may use compute units, until `colab-relay vm down %s` or until Colab ends it.\n%s\n", started.Name, vm.KeepText)
		return nil
	})
}

// login is a call of `colab-relay vm login`.
type login struct {
	set     *config.Settings
	std     terminal.Streams
	backend string
	client  string // file of an OAuth client
	yes     bool
}

func loginCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	l := login{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Show the rules, and log in to Google so that the relay can start VMs",
		Long: "Show the rules and risks of starting Colab's VMs from this computer, ask whether you accept them, and log in to Google. Agents can start VMs afterwards, if the toolset provision is served to them.\n" +
			"--backend cli uses Google's own command line, the program `colab` of the Python package google-colab-cli, and its login. You install it yourself; it needs Python 3.12.\n" +
			"--backend api uses Google's API for Colab. It needs a Google Cloud project in which that API is enabled, and an OAuth client of type Desktop app: --client names its JSON file. Without --client, the application default credentials of `gcloud` are used.",
		Example: "  colab-relay vm login\n  colab-relay vm login --backend api --client client_secret.json",
		Args:    cli.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&l.backend, "backend", cli.BackendCLI, "how VMs are started: `cli` or api")
	cli.FileFlag(cmd.Flags(), &l.client, "client", "with --backend api, the JSON `FILE` of your OAuth client")
	cmd.Flags().BoolVar(&l.yes, "yes", false, "accept the rules without being asked")
	return cmd
}

func (l *login) run(ctx context.Context) error {
	switch {
	case l.backend != cli.BackendCLI && l.backend != cli.BackendAPI:
		return cli.Usagef("--backend %q: use cli or api", l.backend)
	case l.backend == cli.BackendCLI && l.client != "":
		return cli.Usagef("--client %q: it needs --backend api", l.client)
	}
	cfg := config.Load(*l.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	fmt.Fprintln(l.std.Out, cli.Fitted(l.std.Out, vm.Rules))
	fmt.Fprintln(l.std.Out)
	if !l.yes {
		if !terminal.Is(l.std.In) {
			return errors.New("nothing was enabled: stdin is not a terminal, so nobody can accept the rules; give --yes to accept them")
		}
		if !terminal.Confirm(ctx, l.std, "Have you read this, and do you want the relay to start VMs with your account?") {
			return errors.New("nothing was enabled")
		}
	}
	err := l.logIn(ctx, cfg.VMDir)
	if errors.Is(err, vm.ErrNotEnabled) || errors.Is(err, vm.ErrNotLoggedIn) { // whose next step is this command
		return cli.Reported(err, cli.ExitFailure)
	}
	if err != nil {
		return err
	}
	if err := vm.SaveLogin(cfg.VMDir, vm.Login{Backend: l.backend, Accepted: time.Now().UTC()}); err != nil {
		return err
	}
	fmt.Fprintln(l.std.Out, "The relay can start VMs now: `colab-relay vm up --gpu T4`. For agents, also serve the toolset provision: `colab-relay install HOST --toolsets all`.")
	return nil
}

// logIn lets the backend log in.
func (l *login) logIn(ctx context.Context, dir string) error {
	if l.backend == cli.BackendAPI {
		return colabapi.Login(ctx, colabapi.LoginRequest{
			Dir: dir, ClientFile: l.client, Getenv: l.set.Get, Open: browser.Open,
			Show: func(url string) {
				fmt.Fprintf(l.std.Err, "Allow access in your browser. If no page appears, open this link:\n  %s\n", url)
			},
		})
	}
	opened, err := cli.NewBackends(dir, nil).Open(cli.BackendCLI)
	if err != nil {
		return err
	}
	return opened.(*colabcli.Backend).Login(ctx, l.std.In, l.std.Err, l.std.Err)
}
