package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func statusCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show whether each paired VM answers, and the settings",
		Long:    "Show whether the executor of each paired runtime answers, and the settings. The exit code is 0 only if the default runtime answers.",
		Example: "  colab-relay status\n  colab-relay status --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := statusOf(cmd.Context(), config.Load(*set), set)
			if s.pairings == nil {
				return err
			}
			if asJSON {
				if err := printJSON(std.Out, s); err != nil {
					return err
				}
			} else {
				s.print(std.Out, terminal.ColoursFor(std.Out, set.Getenv))
			}
			return err
		},
	}
	set.AddFlags(cmd.Flags())
	addJSONFlag(cmd, &asJSON)
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
	s := statusReport{RelayVersion: version, SaveDir: cfg.SaveDir, CheckpointDir: cfg.CheckpointDir, HoldSeconds: cfg.Hold.Seconds(),
		WrongSettings: []string{}, Runtimes: []runtimeStatus{}, pairings: cfg.Pairings}
	for _, err := range cfg.Problems {
		s.WrongSettings = append(s.WrongSettings, plain.Line(err.Error()))
	}
	if cfg.Pairings == nil {
		return s, cfg.Err()
	}
	all, err := cfg.Pairings.List()
	if err != nil {
		s.pairings = nil
		return s, err
	}
	inUse, unclear := pairing.Resolve("", set.Get, cfg.Pairings)
	if inUse.Name == pairing.EnvName {
		all = append([]pairing.Runtime{inUse}, all...)
	}
	s.Runtimes = make([]runtimeStatus, len(all))
	var checks sync.WaitGroup
	for i, r := range all {
		checks.Go(func() {
			s.Runtimes[i] = runtimeStatus{r.Name, r.Name == inUse.Name, connect(ctx, r, vmTransport(*set, cfg))}
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
			return s, reportedError{fmt.Errorf("the default runtime %q is not connected", r.Runtime), exitCode(r.err)}
		}
	}
	return s, nil
}
