package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
)

type saveArgs struct {
	Name string `json:"name" min:"1" max:"200" doc:"Name of the state; saving under it again adds a version." arg:"NAME"`
	Keep int64  `json:"keep_versions" default:"3" min:"1" max:"100" doc:"Versions to keep; older ones are deleted." flag:"keep" usage:"how many versions to keep; older ones are deleted"`
	target
}

// KernelState is the answer of save_kernel_state and restore_kernel_state.
type KernelState struct {
	Status        string                 `json:"status"`                // saved, restored; saving, restoring: not done yet, call again; failed
	Path          string                 `json:"path,omitempty"`        // the saved version's folder on the relay's machine
	Overwritten   []string               `json:"overwritten,omitempty"` // names that existed in the kernel and were replaced
	Name          string                 `json:"name"`
	Version       string                 `json:"version,omitempty"` // version of the state; empty until it is known
	Created       time.Time              `json:"created,omitzero"`  // the time of which this version has the variables
	VariableCount int                    `json:"variable_count"`
	Variables     []kernelstate.Variable `json:"variables,omitzero"` // name, type and bytes; data that variables share counts for one of them. At most 36 kB are listed
	Modules       []kernelstate.Module   `json:"modules,omitzero"`   // names that are restored as imports
	SkippedCount  int                    `json:"skipped_count"`
	Skipped       []kernelstate.Omission `json:"skipped,omitzero"`       // what could not be saved or restored, each with the reason
	Bytes         int64                  `json:"bytes"`                  // size of the data file
	SHA256        string                 `json:"sha256,omitempty"`       // SHA-256 of the data file, compared on both sides
	Pickler       string                 `json:"pickler,omitempty"`      // dill, cloudpickle, or pickle, which loses functions and classes defined in the notebook
	Python        string                 `json:"python,omitempty"`       // version of the kernel's Python
	ExecutionID   string                 `json:"execution_id,omitempty"` // the run in the kernel that does the work; interrupt_execution ends it
	Doing         string                 `json:"doing,omitempty"`        // the current step, and the current variable if it takes long; empty when done
	Warnings      []string               `json:"warnings,omitzero"`
	CanContinue   bool                   `json:"can_continue"`           // not done yet; the same call continues
	NextCommand   string                 `json:"next_command,omitempty"` // the next step; empty when done
}

func saveState() Operation {
	return operation(spec{
		title:       "Save the kernel's variables",
		description: "Use it before a VM ends (answers warn of that) and after expensive work: it saves variables, functions, classes and imports on this computer for restore_kernel_state; the answer names what can't be saved. With status saving, call again with the same arguments and run nothing in between.",
		Command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
			Short: "Save the kernel's variables on this computer",
			Long: "Save the variables, functions, classes and imports of the VM's kernel on this computer, as a new version of the state NAME. The answer names what cannot be saved.\n" +
				"`colab-relay restore` loads them into any kernel, also on another VM. If the command is stopped, run it again to resume it.",
			Examples: "  colab-relay save training\n  colab-relay save training --keep 10"},
	}, func(ctx context.Context, c *call, args saveArgs) (*KernelState, error) {
		var got kernelstate.Saved
		err := c.moveState(ctx, args.Name, "the kernel collects its variables", func(report func(transfer.Progress)) (err error) {
			got, err = kernelstate.Save(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
				Name: args.Name, Runtime: c.target.Name, Keep: int(args.Keep), Until: time.Now().Add(c.waitBudget()), Report: report,
			})
			return err
		})
		c.checkKernel(got.Execution.KernelID)
		s := c.newState(args.Name, got.Progress, got.Manifest)
		s.Path, s.Skipped, s.SkippedCount = got.Path, got.Manifest.Skipped, got.Manifest.SkippedCount
		return s, c.stateOutcome(s, got.Progress, "saved", "saving", err)
	})
}

type restoreArgs struct {
	Name    string `json:"name" min:"1" max:"200" doc:"Name of the saved state." arg:"NAME"`
	Version string `json:"version" default:"" max:"100" doc:"Name or number of a version; by default the newest intact one." flag:"version" usage:"the 'VERSION' to restore, its name or number (default the newest intact one)"`
	target
}

func restoreState() Operation {
	return operation(spec{
		title:       "Restore the kernel's variables",
		description: "Use it when a warning says that the kernel or VM is new: it loads what save_kernel_state saved. Names that exist in the kernel are replaced. With status restoring, call again with the same arguments.",
		Command: Command{Group: "files", Setting: "CHECKPOINT_DIR", Confirm: true,
			Short: "Load saved variables into the VM's kernel",
			Long: "Load what `colab-relay save` or an agent saved as NAME into the kernel, also on another VM. Variables of the same names are replaced. `colab-relay states` lists what is saved.\n" +
				"Loading runs code that whoever controlled the VM of the save could choose. If the command is stopped, run it again to resume it.",
			Examples: "  colab-relay restore training\n  colab-relay restore training --version 2 --yes"},
	}, func(ctx context.Context, c *call, args restoreArgs) (*KernelState, error) {
		if err := c.confirm("Load %q into the kernel of %q? Variables of the same names are replaced.", args.Name, c.target.Name); err != nil {
			return nil, err
		}
		var got kernelstate.Restored
		err := c.moveState(ctx, args.Name, "the kernel works on the state", func(report func(transfer.Progress)) (err error) {
			got, err = kernelstate.Restore(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
				Name: args.Name, Runtime: c.target.Name, Version: args.Version, Until: time.Now().Add(c.waitBudget()), Report: report,
			})
			return err
		})
		if all, _ := kernelstate.List(c.cfg.CheckpointDir); errors.Is(err, kernelstate.ErrNotFound) && len(all) > 0 {
			var names []string
			for _, s := range all {
				names = append(names, s.Name)
			}
			err = fmt.Errorf("%w; saved are %s", err, inlineList(names))
		}
		c.kernels.record(c.target.Name, got.Execution.KernelID) // a new one is why this was called
		s := c.newState(args.Name, got.Progress, got.Manifest)
		if got.Done() {
			s.VariableCount, s.Variables, s.Modules = got.Loaded.VariableCount, got.Loaded.Variables, got.Loaded.Modules
			s.Warnings = append(s.Warnings, got.Loaded.Warnings...)
		}
		s.Skipped, s.SkippedCount, s.Overwritten = got.Loaded.Failed, got.Loaded.FailedCount, fit(c, got.Loaded.Overwritten)
		return s, c.stateOutcome(s, got.Progress, "restored", "restoring", err)
	})
}

// moveState does work, which begins with what the kernel does, and shows its progress.
func (c *call) moveState(ctx context.Context, name, kernelDoes string, work func(report func(transfer.Progress)) error) error {
	if c.person != nil {
		c.tellOccupied(ctx)
		c.step(kernelDoes)
		_, err := c.person.Transfer(name, func(report func(transfer.Progress)) (r transfer.Result, err error) { return r, work(report) })
		return err
	}
	var meter progress.Meter
	c.progress.measureWith(func() (string, amount) {
		p, at := meter.Last()
		if at.IsZero() {
			return kernelDoes, amount{}
		}
		return meter.Describe(time.Now()), amount{p.Done, p.Total}
	})
	return work(meter.Report)
}

// newState is an answer without what differs between a save and a restore. The manifest next to the
// data has all names.
func (c *call) newState(name string, p kernelstate.Progress, m kernelstate.Manifest) *KernelState {
	s := &KernelState{
		Name: name, Version: m.Version, Created: m.Created, VariableCount: m.VariableCount, Variables: m.Variables, Modules: m.Modules,
		Bytes: m.Bytes, SHA256: m.SHA256, Pickler: m.Pickler, Python: m.Python,
		ExecutionID: p.Execution.ExecutionID, Warnings: append([]string{}, p.Warnings...),
	}
	if !p.Done() {
		s.Doing = string(p.Phase)
		if p.At.Of > 0 {
			s.Doing += fmt.Sprintf(": at variable %d of %d, %q", p.At.Number, p.At.Of, p.At.Variable)
		}
	}
	if b := client.BehindInput(p.Execution); b != nil {
		answer := hint.ForPrompt(b)
		s.Warnings = append(s.Warnings, fmt.Sprintf("this waits for %s. %s", hint.Asking(b), c.either(answer.Model, answer.Person)))
	} else if p.Queued {
		s.Warnings = append(s.Warnings, "another run occupies the kernel; this waits until it has ended")
	}
	return s
}

// stateOutcome completes an answer, and returns its error. done and doing are its states.
func (c *call) stateOutcome(s *KernelState, p kernelstate.Progress, done, doing string, err error) error {
	c.warnOfEnd(p.Execution.SessionMinutesLeft)
	s.Variables, s.Modules, s.Skipped = fit(c, s.Variables), fit(c, s.Modules), fit(c, s.Skipped)
	late := p.Execution.ExecutionID != "" && errors.Is(err, context.DeadlineExceeded) && !unreachable(err) // only the call's time is over
	switch {
	case err == nil && p.Done():
		s.Status = done
		return nil
	case err != nil && !late:
		s.Status = "failed"
		return hint.With(hint.KernelState, "", err)
	}
	s.Status = doing
	if c.person != nil {
		return fmt.Errorf("it is not done yet (%s): run the same command again", s.Doing)
	}
	s.CanContinue, s.NextCommand = true, c.again()
	return nil
}

func (s *KernelState) text(w *words) {
	if w.person == nil || s.SHA256 != "" {
		fmt.Fprintf(w, "State %q: %s", s.Name, s.Status)
		if s.SHA256 != "" {
			fmt.Fprintf(w, ", version %s of %s, %s, %s, %s, with %s", inline(s.Version), w.when(s.Created), plain.Count(s.VariableCount, "variable"), plain.Count(len(s.Modules), "module"), progress.Bytes(s.Bytes), inline(s.Pickler))
		}
		w.WriteString("\n")
	}
	if s.NextCommand != "" {
		fmt.Fprintf(w, "Not done yet. Next step: %s\n", s.NextCommand)
		w.quote("now", s.Doing)
	}
	w.notes(s.Warnings)
	if s.Path != "" {
		fmt.Fprintf(w, "Saved in %s\n", s.Path)
	}
	if len(s.Overwritten) > 0 {
		fmt.Fprintf(w, "Replaced: %s\n", inlineList(s.Overwritten))
	}
	if len(s.Variables)+len(s.Modules) > 0 {
		table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: "SIZE", Right: true})
		for _, v := range s.Variables {
			size := ""
			if v.Bytes > 0 {
				size = progress.Bytes(v.Bytes)
			}
			table.Add(v.Name, v.Type, size)
		}
		for _, m := range s.Modules {
			table.Add(m.Name, "module", "")
		}
		w.table("variables", table)
	}
	if s.SkippedCount > 0 {
		table := terminal.NewTable(terminal.Column{Title: "SKIPPED"}, terminal.Column{Title: "REASON"})
		for _, l := range s.Skipped {
			table.Add(l.Name, l.Reason)
		}
		w.table(fmt.Sprintf("skipped: %d", s.SkippedCount), table)
	}
}

// maxStatesNamed bounds the saved states that a warning lists.
const maxStatesNamed = 5

// savedStates lists the states that users saved and that fit accepts, newest first; empty if
// there are none.
func (c *call) savedStates(fits func(*kernelstate.Manifest) bool) string {
	var names []string
	all, _ := kernelstate.List(c.cfg.CheckpointDir)
	for _, s := range all {
		if s.Newest != nil && s.Runtime == c.target.Name && fits(s.Newest) {
			names = append(names, fmt.Sprintf("%q of %s", clipName(s.Name), s.Created.UTC().Format(time.RFC3339)))
		}
	}
	if more := len(names) - maxStatesNamed; more > 0 {
		names = append(names[:maxStatesNamed], fmt.Sprintf("and %d older", more))
	}
	return strings.Join(names, ", ")
}

// afterLoss returns the part of a new kernel's warning that says what to do.
func (c *call) afterLoss() string {
	names := c.savedStates(func(*kernelstate.Manifest) bool { return true })
	if names == "" {
		return "Run the setup code again."
	}
	return "Call restore_kernel_state to restore a saved state (" + names + "), or run the setup code again."
}

// warnLost warns, in the answer's first line, that a chunked run stopped without its
// variables, and lists the saved states that contain them.
func (c *call) warnLost(s *chunked.Record, o chunked.Outcome) {
	if o.Stop == nil || s.Status != chunked.StatusVariablesLost || s.Failure == nil {
		return
	}
	saved := c.savedStates(func(m *kernelstate.Manifest) bool { return contains(m, s) })
	if saved == "" {
		saved = "No saved state of this runtime contains them."
	} else {
		saved = "Saved states that contain them: " + saved + "."
	}
	c.warn("This kernel is new and does not have the variables that iterations 0 to %d assigned: %s. Nothing was run. %s", s.Done-1, chunked.List(s.Failure.Variables), saved)
}

// contains reports whether a saved state has the run's variables. It may have more iterations
// than were confirmed here: those of a round that was running.
func contains(m *kernelstate.Manifest, s *chunked.Record) bool {
	mine := slices.ContainsFunc(m.Runs, func(r kernelstate.RunProgress) bool { return r.Key == s.Key })
	return mine && !slices.ContainsFunc(m.Skipped, func(l kernelstate.Omission) bool { return slices.Contains(s.Failure.Variables, l.Name) })
}
