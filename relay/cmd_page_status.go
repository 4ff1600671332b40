package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// controlTime is how long another relay may take to answer.
const controlTime = 5 * time.Second

// noPages is what a person reads if no relay listens.
const noPages = "no relay of yours waits for Colab's page; an agent's relay does so from its first open_colab_browser_connection on, and `colab-relay page open` while it runs"

func pageStatusCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List your relays to which Colab's page can connect",
		Long:    "List the relays of yours to which Colab's page can connect, and whether a tab is connected. Every MCP host starts a relay of its own, and a tab is connected to one of them.",
		Example: "  colab-relay page status\n  colab-relay page status --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			others, err := otherPages(set)
			if err != nil {
				return err
			}
			return printPages(statusOfPages(cmd.Context(), others), asJSON, std)
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// otherPages returns the relays of this user to which a page can connect, by pid.
func otherPages(set *config.Settings) ([]*page.Other, error) {
	cfg := config.Load(*set)
	if cfg.PageDir == "" {
		return nil, errors.New("there is no folder in which relays leave word of themselves: set HOME")
	}
	others, err := page.ControlAll(cfg.PageDir)
	slices.SortFunc(others, func(a, b *page.Other) int { return cmp.Compare(a.PID, b.PID) })
	return others, err
}

// pageStatus is what `colab-relay page status` shows of a relay.
type pageStatus struct {
	PID     int       `json:"pid"`
	Port    int       `json:"port"`
	Started time.Time `json:"started"`
	// Tab is connected, waiting (for a page that was opened), none, or unknown if the relay
	// does not answer.
	Tab            string    `json:"tab"`
	ConnectedSince time.Time `json:"connected_since,omitzero"`
	Error          string    `json:"error,omitempty"`
}

func statusOfPages(ctx context.Context, others []*page.Other) []pageStatus {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	all := make([]pageStatus, len(others))
	var asked sync.WaitGroup
	for i, other := range others {
		asked.Go(func() {
			all[i] = pageStatus{PID: other.PID, Port: other.Port, Started: other.Started, Tab: "none"}
			state, err := other.Status(ctx)
			switch {
			case err != nil:
				all[i].Tab, all[i].Error = "unknown", plain.Line(err.Error())
			case state.Connected:
				all[i].Tab, all[i].ConnectedSince = "connected", state.ConnectedSince
			case state.Waiting:
				all[i].Tab = "waiting"
			}
		})
	}
	asked.Wait()
	return all
}

func printPages(all []pageStatus, asJSON bool, std terminal.Streams) error {
	if asJSON {
		return printJSON(std.Out, struct {
			Pages []pageStatus `json:"pages"`
		}{all})
	}
	if len(all) == 0 {
		fmt.Fprintln(std.Err, noPages)
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "PID", Right: true}, terminal.Column{Title: "PORT", Right: true}, terminal.Column{Title: "STARTED"}, terminal.Column{Title: "TAB"})
	for _, p := range all {
		tab := p.Tab
		switch {
		case p.Error != "":
			tab += ": " + p.Error
		case !p.ConnectedSince.IsZero():
			tab += " since " + when(p.ConnectedSince, time.Now())
		}
		table.Add(strconv.Itoa(p.PID), strconv.Itoa(p.Port), when(p.Started, time.Now()), tab)
	}
	return table.Print(std.Out)
}
