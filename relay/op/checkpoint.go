package op

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/relay/terminal"
)

type checkpointArgs struct {
	Name string `json:"checkpoint_name" was:"operation" min:"1" max:"200" doc:"The checkpoint_name of the run." arg:"NAME"`
	target
}

// Checkpoint is the answer of get_checkpoint.
type Checkpoint struct {
	Exists    bool       `json:"exists"`
	Operation string     `json:"operation"`
	Timestamp *time.Time `json:"timestamp,omitzero"` // when it was last written; absent if there is none
	Path      string     `json:"path,omitempty"`     // its complete file on the relay's machine
	Data      any        `json:"data,omitempty"`     // of a chunked run: status, completed, results (values of result by iteration) and more. Of a long run: its answer
	Truncated bool       `json:"truncated"`          // it is too long to be shown here, except in its file
	Names     []string   `json:"names,omitempty"`    // if no checkpoint has that name: the names that exist

	describe func(w *words) // says what it is
	limit    int            // characters of the text
}

func (r *Checkpoint) maxText() int { return r.limit }

// Bounds of a checkpoint's answer.
const (
	maxDataBytes    = 100_000
	maxCellProblems = 20
	maxLineShown    = 300 // characters of a line from the VM
	maxLinesShown   = 5   // of what was printed last
)

func getCheckpoint() Operation {
	return operation(spec{
		title:       "Read a checkpoint",
		description: "Reads what is saved on this computer under a checkpoint_name: progress and results of run_chunked_operation, or the answer of run_code_long. If the VM answers, the progress is current.",
	}, func(ctx context.Context, c *call, args checkpointArgs) (*Checkpoint, error) {
		dir, name := c.cfg.CheckpointDir, args.Name
		got := &Checkpoint{Operation: name, limit: c.cfg.TextLimit}
		entry, err := checkpoint.Load(dir, name, nil)
		switch {
		case errors.Is(err, checkpoint.ErrNotFound):
			if got.Names, err = checkpoint.Names(dir); err == nil && c.person != nil {
				return nil, fmt.Errorf("there is no checkpoint %q; those that exist: %s", name, inlineList(got.Names))
			}
			got.Names, got.Truncated = fitList(got.Names)
			return got, err
		case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrTooLarge), err == nil && !bytes.HasPrefix(entry.Data, []byte("{")):
			return nil, fmt.Errorf("%q in %s: %w", name, checkpoint.Path(dir, name), chunked.ErrDamaged)
		case err != nil:
			return nil, err
		}
		got.Exists, got.Timestamp, got.Path = true, &entry.Timestamp, checkpoint.Path(dir, name)
		if got.describe, err = c.describe(ctx, name, entry); err != nil {
			return nil, fmt.Errorf("%q in %s: %w", name, got.Path, err)
		}
		if got.Truncated = len(entry.Data) > maxDataBytes; !got.Truncated {
			decoder := json.NewDecoder(bytes.NewReader(entry.Data))
			decoder.UseNumber()
			err = decoder.Decode(&got.Data)
		}
		return got, err
	})
}

// peekTime is how long get_checkpoint waits for the VM.
const peekTime = 3 * time.Second

// errOtherRuntime: the run is on another VM than the one of this call.
var errOtherRuntime = errors.New("the run is on another runtime")

// peek asks the VM how far a chunked run is. It changes nothing, and the run's lock is not needed.
func (c *call) peek(ctx context.Context, r *chunked.Record) (*chunked.Record, error) {
	at := c.target
	if c.asked == "" && at.Name != r.Runtime {
		at, _ = c.cfg.Resolve(r.Runtime)
	}
	if at.Client == nil || at.Name != r.Runtime {
		return r, errOtherRuntime
	}
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	return chunked.Peek(ctx, at.Client, r, time.Now().Add(peekTime/2))
}

// describe returns what describes a checkpoint. The first sentence begins with what it is.
func (c *call) describe(ctx context.Context, name string, entry checkpoint.Entry) (func(w *words), error) {
	switch entry.Kind() {
	case chunked.Kind:
		saved, err := chunked.Read(entry)
		if err != nil {
			return nil, err
		}
		live, unread := c.peek(ctx, saved)
		run := chunkedOf(live)
		if run.room = c.cfg.TextLimit / 2; run.CanContinue {
			run.NextCommand = c.nextOfSaved(name, run)
		}
		return func(w *words) {
			run.describe(w)
			switch {
			case saved.Job == nil || saved.Status != chunked.StatusRunning:
			case unread != nil:
				fmt.Fprintf(w, "If the VM is alive, it continues the run by itself; its present state could not be read (%s).\n", plain.Line(plain.Clip(unread.Error(), maxLineShown)))
			case live.Done > saved.Done:
				fmt.Fprintf(w, "The VM has just confirmed %s; their values and output are not read yet.\n", chunked.Iterations(saved.Done, live.Done-1))
			}
		}, nil
	case nbrun.Kind:
		r, err := nbrun.Read(entry)
		return func(w *words) { notebookText(w, r) }, err
	}
	var kept savedAnswer
	if json.Unmarshal(entry.Data, &kept) != nil {
		return nil, chunked.ErrDamaged
	}
	return func(w *words) {
		if kept.Run == nil || kept.Status == "" {
			w.WriteString("of a kind that this release cannot describe.\n")
			return
		}
		fmt.Fprintf(w, "a kept answer of run_code_long on runtime %q:\n", plain.Line(kept.Outcome.Runtime))
		kept.runtime = kept.Outcome.Runtime
		kept.Outcome.text(w)
		kept.Run.text(w)
		kept.Outcome.trace(w)
	}, nil
}

// nextOfSaved is the next step of a saved run that is not finished.
func (c *call) nextOfSaved(name string, r *Chunked) string {
	if next := c.afterStop(r, r.Status); next != "" {
		return next
	}
	return c.loop(name) + " reads on, and continues the run if it does not run any more"
}

// describe says how far a saved run is.
func (r *Chunked) describe(w *words) {
	s := r.record
	fmt.Fprintf(w, "a chunked run on runtime %q: %s.\n", plain.Line(s.Runtime), plain.Clip(r.Status, 40))
	r.text(w)
	if r.Completed > 0 {
		fmt.Fprintf(w, "Last confirmed at %s\n", w.when(s.UpdatedAt))
	}
	if f := s.Failure; f != nil {
		at := "It stopped"
		if f.Iteration != nil {
			at = fmt.Sprintf("It stopped at iteration %d", *f.Iteration)
		}
		fmt.Fprintf(w, "%s: %s\n", at, plain.Quote(plain.Clip(f.Message, maxLineShown)))
	}
	w.quote("variables that iterations pass on", plain.Clip(s.Variables(), 2*maxLineShown))
	if printed := strings.TrimSpace(render.Plain(s.Output)); printed != "" {
		lines := strings.Split(printed, "\n")
		lines = lines[max(0, len(lines)-maxLinesShown):]
		for i := range lines {
			lines[i] = plain.Clip(lines[i], maxLineShown)
		}
		w.quote("printed last", strings.Join(lines, "\n"))
	}
}

// notebookText describes the record of a notebook's runs.
func notebookText(w *words, r *nbrun.Record) {
	fmt.Fprintf(w, "the record of runs of the notebook %s on runtime %q.\n", plain.Line(r.Path), plain.Line(r.Runtime))
	if r.Run.ID == "" {
		w.WriteString("Single cells of it were run, but not the whole notebook.\n")
		return
	}
	run := &r.Run
	fmt.Fprintf(w, "The last run of the notebook, begun at %s: %s.\n", w.when(run.StartedAt), plain.Clip(run.Summary(), maxLineShown))
	var problems []string
	for i := range run.Plan {
		if text := run.Plan[i].Problem(); text != "" {
			problems = append(problems, plain.Clip(text, maxLineShown))
		}
	}
	if more := len(problems) - maxCellProblems; more > 0 {
		problems = append(problems[:maxCellProblems], "and "+plain.Count(more, "more cell"))
	}
	w.quote("cells that did not succeed", strings.Join(problems, "\n"))
	path := plain.Line(r.Path)
	switch {
	case !run.Status.Finished():
		fmt.Fprintf(w, "Next step: %s continues it.\n", w.either(fmt.Sprintf("run_notebook with notebook_path=%q and the same arguments as before", path), "`colab-relay nb run "+plain.ShellWord(path)+"` with the same flags as before"))
	case !run.Succeeded():
		fmt.Fprintf(w, "Next step: correct the cells%s\n", w.either(" with update_cell, then call "+command("run_notebook", "notebook_path", path, "cells", "dirty")+".", ", then run `colab-relay nb run "+plain.ShellWord(path)+"`."))
	}
}

func (r *Checkpoint) text(w *words) {
	if !r.Exists {
		fmt.Fprintf(w, "There is no checkpoint %q. ", r.Operation)
		if len(r.Names) == 0 {
			w.WriteString("There are none at all.\n")
			return
		}
		w.WriteString("Others exist.\n")
		w.quote("checkpoints that exist", strings.Join(r.Names, "\n"))
		return
	}
	fmt.Fprintf(w, "Checkpoint %q, written at %s, is ", r.Operation, w.when(*r.Timestamp))
	r.describe(w)
	fmt.Fprintf(w, "The complete file: %s\n", r.Path)
}

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

func listCheckpoints() Operation {
	return operation(spec{
		Command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
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

func listStates() Operation {
	return operation(spec{
		Command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
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
