// Package page has `colab-relay page`: the commands that connect a tab of Colab in this person's
// browser, show what is connected, and close it. It must not speak to the tab itself: relay/page
// does. Start reading at Command.
package page

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

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay page`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND",
		Short: "Connect with a notebook that is open in Colab's page",
		Long: "A tab of Colab can connect with a relay on this computer; an agent then reads, edits and runs the cells that you see in your browser. An agent connects a tab itself, with its tool open_colab_browser_connection. These commands try that without an agent, start the executor on the page's VM, and show or end the connections of running relays.\n" +
			"A tab connects to one relay. Colab asks you to confirm every connection.",
		Example: "  colab-relay page open\n  colab-relay page status\n  colab-relay page close",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		openCommand(set, std),
		statusCommand(set, std),
		closeCommand(set, std),
	)
	return cmd
}

// controlTime is how long another relay may take to answer.
const controlTime = 5 * time.Second

// noPages is what a person reads if no relay listens.
const noPages = "no relay of yours waits for Colab's page; an agent's relay does so from its first open_colab_browser_connection on, and `colab-relay page open` while it runs"

func statusCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List your relays to which Colab's page can connect",
		Long:    "List the relays of yours to which Colab's page can connect, and whether a tab is connected. Every MCP host starts a relay of its own, and a tab is connected to one of them.",
		Example: "  colab-relay page status\n  colab-relay page status --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			others, err := otherPages(set)
			if err != nil {
				return err
			}
			return printPages(statusOfPages(cmd.Context(), others), asJSON, std)
		},
	}
	cli.AddJSONFlag(cmd, &asJSON)
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
		return cli.PrintJSON(std.Out, struct {
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
			tab += " since " + cli.When(p.ConnectedSince, time.Now())
		}
		table.Add(strconv.Itoa(p.PID), strconv.Itoa(p.Port), cli.When(p.Started, time.Now()), tab)
	}
	return table.Print(std.Out)
}

func closeCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	pid := 0
	cmd := &cobra.Command{
		Use:   "close",
		Short: "End the connections with Colab's page",
		Long: "End the connections of your relays with Colab's page, and let no tab connect until an agent asks for one again. Cells that run go on in Colab.\n" +
			"Without --pid, this is done for every relay that `colab-relay page status` lists. The relays themselves go on.",
		Example: "  colab-relay page close\n  colab-relay page close --pid 4711",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			others, err := otherPages(set)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("pid") {
				others = slices.DeleteFunc(others, func(o *page.Other) bool { return o.PID != pid })
				if len(others) == 0 {
					return fmt.Errorf("no relay with the pid %d waits for Colab's page; `colab-relay page status` lists those that do", pid)
				}
			}
			if len(others) == 0 {
				fmt.Fprintln(std.Err, noPages)
				return nil
			}
			return closePages(cmd.Context(), others, std)
		},
	}
	cmd.Flags().IntVar(&pid, "pid", 0, "only of the relay with this `PID`")
	return cmd
}

func closePages(ctx context.Context, others []*page.Other, std terminal.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	var failed []error
	for _, other := range others {
		if err := other.Close(ctx); err != nil {
			failed = append(failed, fmt.Errorf("close the page of the relay with the pid %d: %w", other.PID, err))
			continue
		}
		fmt.Fprintf(std.Out, "Closed the connection of the relay with the pid %d (port %d).\n", other.PID, other.Port)
	}
	return errors.Join(failed...)
}
