package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/doctor"
	"colabrelay/relay/op"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// StatusCommand returns `colab-relay status`.
func StatusCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show whether each paired VM answers, and the settings",
		Long:    "Show whether the executor of each paired runtime answers, and the settings. The exit code is 0 only if the default runtime answers.",
		Example: "  colab-relay status\n  colab-relay status --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := statusOf(cmd.Context(), config.Load(*set), set)
			if s.pairings == nil {
				return err
			}
			if asJSON {
				if err := cli.PrintJSON(std.Out, s); err != nil {
					return err
				}
			} else {
				s.print(std.Out, terminal.ColoursFor(std.Out, set.Getenv))
			}
			return err
		},
	}
	set.AddFlags(cmd.Flags())
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

// statusReport is what `colab-relay status` shows.
type statusReport struct {
	RelayVersion  string          `json:"relay_version"`
	SaveDir       string          `json:"save_dir"`
	CheckpointDir string          `json:"checkpoint_dir"`
	HoldSeconds   float64         `json:"hold_seconds"`
	WrongSettings []string        `json:"wrong_settings"`
	Runtimes      []runtimeStatus `json:"runtimes"`

	pairings *pairing.Store
}

type runtimeStatus struct {
	Runtime string `json:"runtime"`
	Default bool   `json:"default"` // a call that names no runtime uses it
	connection
}

// statusOf returns the settings, and what answers at each runtime. It also returns an
// error unless the settings are right and the default runtime answers.
func statusOf(ctx context.Context, cfg config.Config, set *config.Settings) (statusReport, error) {
	s := statusReport{RelayVersion: cli.Version, SaveDir: cfg.SaveDir, CheckpointDir: cfg.CheckpointDir, HoldSeconds: cfg.Hold.Seconds(),
		WrongSettings: []string{}, Runtimes: []runtimeStatus{}, pairings: cfg.Pairings}
	for _, err := range cfg.Problems {
		s.WrongSettings = append(s.WrongSettings, plain.Line(err.Error()))
	}
	if cfg.Pairings == nil {
		return s, cfg.Err()
	}
	all, inUse, unclear := doctor.Runtimes(cfg, *set)
	s.Runtimes = make([]runtimeStatus, len(all))
	var checks sync.WaitGroup
	for i, r := range all {
		checks.Go(func() {
			s.Runtimes[i] = runtimeStatus{r.Name, r.Name == inUse.Name, connect(ctx, r, cli.VMTransport(*set, cfg))}
		})
	}
	checks.Wait()
	switch {
	case len(cfg.Problems) > 0:
		return s, errors.New(plain.Count(len(cfg.Problems), "wrong setting"))
	case unclear != nil:
		return s, unclear
	}
	for _, r := range s.Runtimes {
		if r.Default && r.err != nil {
			return s, cli.Reported(fmt.Errorf("the default runtime %q is not connected", r.Runtime), cli.ExitCode(r.err))
		}
	}
	return s, nil
}

// print writes the report for a person.
func (s statusReport) print(out io.Writer, colours terminal.Colours) {
	fmt.Fprintf(out, "colab-relay %s\n", s.RelayVersion)
	for _, line := range [][2]string{{"downloads", s.SaveDir}, {"checkpoints", s.CheckpointDir}, {"longest wait", fmt.Sprintf("%gs", s.HoldSeconds)}} {
		fmt.Fprintf(out, "  %-12s  %s\n", line[0], plain.Line(line[1]))
	}
	for _, wrong := range s.WrongSettings {
		fmt.Fprintf(out, "%s %s\n", colours.Bad("wrong setting:"), wrong)
	}
	for _, r := range s.Runtimes {
		line := "\n" + r.Runtime
		if r.ColabURL != "" {
			line += "  " + plain.Line(r.ColabURL)
		}
		if r.Default {
			line += "  (default)"
		}
		fmt.Fprintln(out, line)
		r.connection.print(out, colours)
	}
}

// connection is what answers at a runtime's address.
type connection struct {
	*op.Connection
	Error *op.Problem `json:"error,omitempty"`

	err error // the cause of Error
}

// connect checks what answers at a runtime's address.
func connect(ctx context.Context, r pairing.Runtime, transport func(pairing.Runtime) http.RoundTripper) connection {
	got, err := op.Reach(ctx, r, transport)
	if r.URL == "" {
		return connection{Connection: got, err: err}
	}
	return connection{got, op.PersonProblem(err), err}
}

// print writes the connection in indented lines that fit the terminal.
func (c *connection) print(out io.Writer, colours terminal.Colours) {
	switch c.Status {
	case "unknown":
		fmt.Fprintf(out, "  %s\n", colours.Warning(c.err.Error()))
		return
	case "connected":
		fmt.Fprint(out, strings.Replace(cli.Fitted(out, "  connected: "+c.Summary()+"\n"), "connected:", colours.Good("connected:"), 1))
		return
	}
	text := "  not connected: " + plain.Line(c.err.Error()) + "\n"
	if c.Error.Hint != "" {
		text += "  next step: " + plain.Line(c.Error.Hint) + "\n"
	}
	fmt.Fprint(out, strings.Replace(cli.Fitted(out, text), "not connected:", colours.Bad("not connected:"), 1))
}

// DoctorCommand returns `colab-relay doctor`.
func DoctorCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything from the settings to the VM, and say what to do",
		Long: "Check the settings, the folders, the MCP hosts and each paired runtime up to its kernel. Each line says ok, warn (it works, with a drawback) or fail, and what to do. Nothing is changed.\n" +
			"The exit code is 1 if a check failed.",
		Example: "  colab-relay doctor\n  colab-relay doctor --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := config.Load(*set)
			checkup := doctor.Checkup{Config: cfg, Settings: *set, Version: cli.Version, Transport: cli.VMTransport(*set, cfg)}
			if !asJSON {
				_, err := doctor.Run(cmd.Context(), checkup, std.Out)
				return err
			}
			findings, failed := doctor.Run(cmd.Context(), checkup, io.Discard)
			if err := cli.PrintJSON(std.Out, struct {
				Checks []doctor.Finding `json:"checks"`
			}{findings}); err != nil {
				return err
			}
			return failed
		},
	}
	set.AddFlags(cmd.Flags())
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}
