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
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
)

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
	return cli.NewCLIBackend(dir, nil).Login(ctx, l.std.In, l.std.Err, l.std.Err)
}
