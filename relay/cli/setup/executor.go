package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/sshhost"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/filename"
)

// cellSource describes the release that the cell fetches.
type cellSource struct {
	bootstrap.Release
	sums     string // file with the digests; empty to fetch them from the release
	notebook bool
}

// BootstrapCommand returns `colab-relay bootstrap`.
func BootstrapCommand(std terminal.Streams) *cobra.Command {
	var s cellSource
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the Colab cell that fetches and starts the executor",
		Long: "Print the Colab cell that fetches and starts the executor, with the release's URL and digests filled in.\n" +
			"The digests are read from the release's SHA256SUMS, which is fetched unless --sums names a copy.",
		Example: "  colab-relay bootstrap\n  colab-relay bootstrap --notebook > colab-relay.ipynb",
		Args:    cli.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.print(cmd.Context(), std) },
	}
	fs := cmd.Flags()
	fs.StringVar(&s.Version, "version", "", "the release `VERSION` (default: this relay's own)")
	fs.StringVar(&s.Releases, "releases", cli.Releases, "`URL` of the folder that contains a folder for each release")
	cli.FileFlag(fs, &s.sums, "sums", "read the release's SHA256SUMS from this `FILE` (- for stdin) instead of fetching it")
	fs.BoolVar(&s.notebook, "notebook", false, "print a notebook (.ipynb) that contains the cell")
	return cmd
}

func (s *cellSource) print(ctx context.Context, std terminal.Streams) error {
	if s.Version == "" && cli.Version != "dev" {
		s.Version = cli.Version
	}
	switch {
	case s.Releases == "":
		return errors.New("this build does not know where the releases are: give --releases URL")
	case s.Version == "":
		return errors.New("this relay is not a release: give a version with --version, such as v1.0.0")
	}
	s.Releases = strings.TrimRight(s.Releases, "/")
	sums, err := s.digests(ctx, std)
	if err == nil {
		err = cli.ReadDigests(&s.Release, sums)
	}
	if err != nil {
		return fmt.Errorf("the digests of release %q: %w", s.Version, err)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	_, err = std.Out.Write(text)
	return err
}

func (s *cellSource) text() ([]byte, error) {
	if s.notebook {
		return bootstrap.Notebook(s.Release)
	}
	cell, err := bootstrap.Cell(s.Release)
	return []byte(cell), err
}

// digests returns the content of SHA256SUMS. It warns if SHA256SUMS is fetched without
// TLS, because then it proves nothing about who made the release.
func (s *cellSource) digests(ctx context.Context, std terminal.Streams) ([]byte, error) {
	switch s.sums {
	case "":
		if strings.HasPrefix(s.Releases, "http://") {
			fmt.Fprintln(std.Err, "note: the digests are fetched over http, so anyone on the network path can change them; compare them with a copy that you trust")
		}
		return cli.FetchSums(ctx, s.Release)
	case "-":
		return bounded.ReadAll(std.In, cli.MaxSums)
	}
	return bounded.ReadInput(s.sums, cli.MaxSums)
}

const (
	defaultPython  = "python3"
	defaultWorkDir = "."
)

// sshOptions is a call of `colab-relay ssh`.
type sshOptions struct {
	name, python, workDir, executor string
	stop                            bool

	set *config.Settings
	std terminal.Streams
}

// SSHCommand returns `colab-relay ssh`.
func SSHCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := &sshOptions{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "ssh HOST [-- OPTION...]",
		Short: "Run the executor on a machine that you reach by SSH, and pair with it",
		Long: "Copy the executor to the machine HOST, start it there, pair this computer with it, and hold the connection until Ctrl-C. HOST is what you give to ssh; what follows -- goes to ssh as well. The machine needs Linux and a Python with ipykernel.\n" +
			"A lost connection is opened again. After Ctrl-C the executor and its runs go on, and the same command connects to it again. --stop ends it.\n" +
			"This uses the ssh program of this computer, with its configuration, keys and known hosts.",
		Example: "  colab-relay ssh lab\n  colab-relay ssh me@gpu.example.org --name gpu --python '~/venv/bin/python'\n  colab-relay ssh lab -- -p 2222 -J gateway\n  colab-relay ssh lab --stop",
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args = args[:at]
			}
			return cli.Arguments(1, 1)(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1:]) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "`NAME` of the runtime (default the machine's name)")
	fs.StringVar(&o.python, "python", defaultPython, "`PATH` of the Python on the machine that runs the code")
	fs.StringVar(&o.workDir, "workdir", defaultWorkDir, "`FOLDER` on the machine in which the code runs, from your home folder there")
	cli.FileFlag(fs, &o.executor, "executor", "copy this `FILE` instead of the executor of the release")
	fs.BoolVar(&o.stop, "stop", false, "end the executor on the machine")
	return cmd
}

func (o *sshOptions) run(ctx context.Context, address string, options []string) error {
	if err := cmp.Or(filename.CheckTyped(o.workDir), filename.CheckTyped(o.python)); err != nil {
		return cli.AsUsage(err)
	}
	if o.name == "" {
		o.name = pairing.NameOfHost(address)
	}
	if o.executor != "" { // not after the login
		if _, err := vm.FileProgram(o.executor, ""); err != nil {
			return err
		}
	}
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	if _, err := store.Get(o.name); errors.Is(err, pairing.ErrNotPaired) && o.executor == "" && !o.stop {
		if err := cli.CheckRelease(o.set.Get); err != nil { // not after the login
			return cli.NeedsExecutor(err)
		}
	}
	again, stop := o.again(address, options), o.again(address, options, "--stop")
	host, err := sshhost.New(sshhost.Config{
		Address: address, Options: options, Arguments: o.arguments(options), Name: o.name, Python: o.python, WorkDir: o.workDir, Stop: stop, Version: cli.Version,
		Store: store, Program: cli.ExecutorProgram(o.set.Get, o.executor),
		Say:       func(line string) { fmt.Fprintln(o.std.Err, plain.Line(line)) },
		Connected: o.connected,
	})
	if err != nil {
		return err
	}
	if o.stop {
		return o.end(ctx, host, address)
	}
	err = host.Run(ctx)
	switch {
	case errors.Is(err, sshhost.ErrHeld):
		fmt.Fprintf(o.std.Out, "%q is connected already; another `%s` holds the connection.\n", o.name, again)
		return nil
	case errors.Is(err, cli.ErrNotRelease):
		return cli.NeedsExecutor(err)
	case err == nil:
		fmt.Fprintf(o.std.Err, "The executor on %s goes on, and its runs too. Connect again with `%s`; end it with `%s`.\n", address, again, stop)
	}
	return err
}

// again returns the command that finds the same machine again.
func (o *sshOptions) again(address string, options []string, flags ...string) string {
	r := pairing.Runtime{Name: o.name, SSHHost: address, SSHArguments: o.arguments(options)}
	return r.SSHCommand(flags...)
}

// arguments are those that a later start needs too, except the name. The executor of --executor
// stays on the machine.
func (o *sshOptions) arguments(options []string) (args []string) {
	if o.python != defaultPython {
		args = append(args, "--python", o.python)
	}
	if o.workDir != defaultWorkDir {
		args = append(args, "--workdir", o.workDir)
	}
	if len(options) > 0 {
		args = append(append(args, "--"), options...)
	}
	return args
}

// connected says what to do with the machine.
func (o *sshOptions) connected(r pairing.Runtime) {
	fmt.Fprintf(o.std.Out, "Connected: runtime %q, reached at %s.\n", r.Name, r.URL)
	fmt.Fprintf(o.std.Err, "Keep this command running. In another terminal: `%s run --runtime %s -c 'print(6 * 7)'`; `%s use %s` makes it the default. Ctrl-C ends the connection, not the executor.\n",
		cli.CommandName, r.Name, cli.CommandName, r.Name)
}

// end is --stop.
func (o *sshOptions) end(ctx context.Context, host *sshhost.Host, address string) error {
	ran, folder, err := host.Stop(ctx)
	switch {
	case err != nil:
		return err
	case ran:
		fmt.Fprintf(o.std.Out, "The executor on %s has ended.\n", address)
	default:
		fmt.Fprintf(o.std.Out, "No executor of %q runs on %s.\n", o.name, address)
	}
	fmt.Fprintf(o.std.Err, "Its program and its past runs stay in %s there. The pairing stays too; `%s unpair %s` removes it.\n", plain.Line(folder), cli.CommandName, o.name)
	return nil
}
