package op

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
)

// Checkpoints is the answer of checkpoints.
type Checkpoints struct {
	Checkpoints []listedCheckpoint `json:"checkpoints"`
}

// listedCheckpoint is a checkpoint in a list. The fields of a chunked run have the names of
// get_checkpoint's data.
type listedCheckpoint struct {
	Operation   string    `json:"operation"`
	Kind        string    `json:"kind"` // chunked run, notebook, answer or damaged
	Status      string    `json:"status,omitempty"`
	Runtime     string    `json:"runtime,omitempty"`
	Completed   int64     `json:"completed"`
	N           int64     `json:"n_iterations"`
	ProgressPct float64   `json:"progress_pct"`
	Timestamp   time.Time `json:"timestamp"` // when it was last written
	Path        string    `json:"path"`
}

func listCheckpoints() tool {
	return operation(spec{
		command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
			Short: "List chunked runs, kept answers and notebook runs on this computer",
			Long: "List what is kept on this computer under a checkpoint_name: the progress of chunked runs, and answers of run_code_long. It also lists the last run of each notebook. The list contacts no VM.\n" +
				"With NAME, show one: of a chunked run the progress, which is current if the VM answers, and the last values of result. `colab-relay loop NAME` continues it.",
			Examples: "  colab-relay checkpoints\n  colab-relay checkpoints train\n  colab-relay checkpoints --json"},
	}, func(_ context.Context, c *call, _ noArgs) (*Checkpoints, error) {
		names, err := checkpoint.Names(c.cfg.CheckpointDir)
		got := &Checkpoints{Checkpoints: []listedCheckpoint{}}
		for _, name := range names {
			got.Checkpoints = append(got.Checkpoints, describeCheckpoint(c.cfg.CheckpointDir, name))
		}
		return got, err
	})
}

func (l *Checkpoints) text(w *words) {
	if len(l.Checkpoints) == 0 {
		w.note("no checkpoints yet: `colab-relay loop`, or an agent's run_chunked_operation or run_code_long with checkpoint_name, makes them")
		return
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "KIND"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "PROGRESS", Right: true}, terminal.Column{Title: "WHEN"})
	for _, one := range l.Checkpoints {
		share := "-"
		if one.N > 0 {
			share = fmt.Sprintf("%d of %d", one.Completed, one.N)
		}
		table.Add(one.Operation, one.Kind, cmp.Or(one.Status, "-"), share, cmp.Or(w.when(one.Timestamp), "-"))
	}
	w.table("checkpoints", table)
}

// describeCheckpoint reads one checkpoint.
func describeCheckpoint(dir, name string) listedCheckpoint {
	c := listedCheckpoint{Operation: name, Kind: "damaged", Path: checkpoint.Path(dir, name)}
	entry, err := checkpoint.Load(dir, name, nil)
	if err != nil {
		return c
	}
	c.Timestamp = entry.Timestamp
	switch entry.Kind() {
	case chunked.Kind:
		if run, err := chunked.Read(entry); err == nil {
			c.Kind, c.Status, c.Runtime, c.Completed, c.N = "chunked run", string(run.Status), run.Runtime, run.Done, run.N
			c.ProgressPct = float64(run.Done) / float64(run.N) * 100
		}
	case nbrun.Kind:
		if record, err := nbrun.Read(entry); err == nil {
			c.Kind, c.Status, c.Runtime = "notebook", string(record.Run.Status), record.Runtime
		}
	default:
		c.Kind = "answer"
	}
	return c
}

// States is the answer of states.
type States struct {
	States []kernelstate.Listed `json:"states"`
}

func listStates() tool {
	return operation(spec{
		command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
			Short: "List the kernel states saved on this computer",
			Long: "List the kernel states that are saved on this computer, with all their versions. It contacts no VM.\n" +
				"`colab-relay restore NAME` loads one into the kernel.",
			Examples: "  colab-relay states\n  colab-relay states --json"},
	}, func(_ context.Context, c *call, _ noArgs) (*States, error) {
		all, err := kernelstate.List(c.cfg.CheckpointDir)
		return &States{all}, err
	})
}

func (s *States) text(w *words) {
	if len(s.States) == 0 {
		w.note("no kernel states yet: `colab-relay save NAME` saves the kernel's variables")
		return
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "RUNTIME"}, terminal.Column{Title: "WHEN"},
		terminal.Column{Title: "VARIABLES", Right: true}, terminal.Column{Title: "VERSIONS", Right: true}, terminal.Column{Title: "SIZE", Right: true})
	for _, one := range s.States {
		versions := strconv.Itoa(len(one.Versions))
		if one.Damaged > 0 && !one.Created.IsZero() {
			versions += fmt.Sprintf(" (%d damaged)", one.Damaged)
		}
		table.Add(one.Name, one.Runtime, cmp.Or(w.when(one.Created), "damaged"), strconv.Itoa(one.VariableCount), versions, progress.Bytes(one.SizeBytes))
	}
	w.table("states", table)
}
