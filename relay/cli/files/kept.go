package files

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
)

// CheckpointsCommand returns `colab-relay checkpoints`.
func CheckpointsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "checkpoints",
		Short: "List chunked runs, kept answers and notebook runs on this computer",
		Long: "List what is kept on this computer under a checkpoint_name: the progress of chunked runs, and answers of run_code_long. It also lists the last run of each notebook. It contacts no VM.\n" +
			"To continue an unfinished chunked run, the agent calls run_chunked_operation with its checkpoint_name.",
		Example:           "  colab-relay checkpoints\n  colab-relay checkpoints --json",
		Args:              cli.Arguments(0, 0),
		RunE:              func(*cobra.Command, []string) error { return listCheckpoints(set, asJSON, std) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

// Kinds of checkpoints.
const (
	kindChunked  = "chunked run"
	kindNotebook = "notebook"
	kindAnswer   = "answer"
	kindDamaged  = "damaged"
)

// listedCheckpoint is a checkpoint in a list. The fields of a chunked run have the names of
// get_checkpoint's data.
type listedCheckpoint struct {
	Operation   string    `json:"operation"`
	Kind        string    `json:"kind"`
	Status      string    `json:"status,omitempty"`
	Runtime     string    `json:"runtime,omitempty"`
	Completed   int64     `json:"completed"`
	N           int64     `json:"n_iterations"`
	ProgressPct float64   `json:"progress_pct"`
	Timestamp   time.Time `json:"timestamp"` // when it was last written
	Path        string    `json:"path"`
}

func listCheckpoints(set *config.Settings, asJSON bool, std terminal.Streams) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	names, err := checkpoint.Names(cfg.CheckpointDir)
	if err != nil {
		return err
	}
	all := []listedCheckpoint{}
	for _, name := range names {
		all = append(all, describeCheckpoint(cfg.CheckpointDir, name))
	}
	if asJSON {
		return cli.PrintJSON(std.Out, struct {
			Checkpoints []listedCheckpoint `json:"checkpoints"`
		}{all})
	}
	if len(all) == 0 {
		fmt.Fprintln(std.Err, "no checkpoints yet: an agent's run_chunked_operation, or run_code_long with checkpoint_name, makes them")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "KIND"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "PROGRESS", Right: true}, terminal.Column{Title: "WHEN"})
	for _, c := range all {
		share, at := "-", "-"
		if c.N > 0 {
			share = fmt.Sprintf("%d of %d", c.Completed, c.N)
		}
		if !c.Timestamp.IsZero() {
			at = cli.When(c.Timestamp, time.Now())
		}
		table.Add(c.Operation, c.Kind, cmp.Or(c.Status, "-"), share, at)
	}
	return table.Print(std.Out)
}

// describeCheckpoint reads one checkpoint.
func describeCheckpoint(dir, name string) listedCheckpoint {
	c := listedCheckpoint{Operation: name, Kind: kindDamaged, Path: checkpoint.Path(dir, name)}
	entry, err := checkpoint.Load(dir, name, nil)
	if err != nil {
		return c
	}
	c.Timestamp = entry.Timestamp
	switch entry.Kind() {
	case chunked.Kind:
		if run, err := chunked.Read(entry); err == nil {
			c.Kind, c.Status, c.Runtime, c.Completed, c.N = kindChunked, string(run.Status), run.Runtime, run.Done, run.N
			c.ProgressPct = float64(run.Done) / float64(run.N) * 100
		}
	case nbrun.Kind:
		if record, err := nbrun.Read(entry); err == nil {
			c.Kind, c.Status, c.Runtime = kindNotebook, string(record.Run.Status), record.Runtime
		}
	default:
		c.Kind = kindAnswer
	}
	return c
}

// StatesCommand returns `colab-relay states`.
func StatesCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "states",
		Short: "List the kernel states saved on this computer",
		Long: "List the kernel states that save_kernel_state saved on this computer, with all their versions. It contacts no VM.\n" +
			"An agent restores one with restore_kernel_state.",
		Example:           "  colab-relay states\n  colab-relay states --json",
		Args:              cli.Arguments(0, 0),
		RunE:              func(*cobra.Command, []string) error { return listStates(set, asJSON, std) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

func listStates(set *config.Settings, asJSON bool, std terminal.Streams) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	all, err := kernelstate.List(cfg.CheckpointDir)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(std.Out, struct {
			States []kernelstate.Listed `json:"states"`
		}{all})
	}
	if len(all) == 0 {
		fmt.Fprintln(std.Err, "no kernel states yet: an agent saves the kernel's variables with save_kernel_state")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "RUNTIME"}, terminal.Column{Title: "WHEN"},
		terminal.Column{Title: "VARIABLES", Right: true}, terminal.Column{Title: "VERSIONS", Right: true}, terminal.Column{Title: "SIZE", Right: true})
	for _, s := range all {
		at, versions := cli.When(s.Created, time.Now()), strconv.Itoa(len(s.Versions))
		if s.Created.IsZero() {
			at = "damaged"
		} else if s.Damaged > 0 {
			versions += fmt.Sprintf(" (%d damaged)", s.Damaged)
		}
		table.Add(s.Name, s.Runtime, at, strconv.Itoa(s.VariableCount), versions, progress.Bytes(s.SizeBytes))
	}
	return table.Print(std.Out)
}
