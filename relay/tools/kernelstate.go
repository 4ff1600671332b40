package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
)

// pickleWarning is part of both descriptions.
const pickleWarning = "The state is a pickle, and a pickle runs code when it is loaded: only states that this relay itself saved here are ever loaded; never put a stranger's files into CHECKPOINT_DIR/state. "

type saveArgs struct {
	Name string `json:"name" min:"1" max:"200" doc:"Name of the state on this computer. Saving under the same name again adds a version."`
	Keep int64  `json:"keep_versions" default:"3" min:"1" max:"100" doc:"How many versions to keep; older ones are deleted once the new one is complete."`
	target
}

// KernelState is the common part of the answers of save_kernel_state and restore_kernel_state.
type KernelState struct {
	Name          string                 `json:"name"`
	Version       string                 `json:"version" doc:"Version of the state; empty until it is known."`
	Created       time.Time              `json:"created" doc:"The time of which this version has the variables."`
	VariableCount int                    `json:"variable_count"`
	Variables     []kernelstate.Variable `json:"variables" doc:"Name, type and bytes; data that variables share counts for one of them. At most 36 kB are listed."`
	Modules       []kernelstate.Module   `json:"modules" doc:"Names that are restored as imports."`
	SkippedCount  int                    `json:"skipped_count"`
	Skipped       []kernelstate.Omission `json:"skipped" doc:"What could not be saved or restored, each with the reason."`
	Bytes         int64                  `json:"bytes" doc:"Size of the data file."`
	SHA256        string                 `json:"sha256" doc:"SHA-256 of the data file, compared on both sides."`
	Pickler       string                 `json:"pickler" doc:"dill, cloudpickle, or pickle, which loses functions and classes defined in the notebook."`
	Python        string                 `json:"python" doc:"Version of the kernel's Python."`
	ExecutionID   string                 `json:"execution_id" doc:"The run in the kernel that does the work; interrupt_execution ends it."`
	Doing         string                 `json:"doing" doc:"The current step, and the current variable if it takes long; empty when done."`
	Warnings      []string               `json:"warnings"`
	CanContinue   bool                   `json:"can_continue" doc:"Not done yet; the same call continues."`
	NextCommand   string                 `json:"next_command" doc:"The next step; empty when done."`
}

// SavedState is the answer of save_kernel_state.
type SavedState struct {
	Status string `json:"status" doc:"saved; saving: not done yet, call again; failed."`
	Path   string `json:"path" doc:"The version's folder on the relay's machine."`
	KernelState
}

func saveState() tool {
	return define(spec{
		name: "save_kernel_state", title: "Save the kernel's variables",
		description: "Save all variables, functions, classes and imports of the kernel on this computer, so that restore_kernel_state can load them into a kernel of another VM. Use it before a VM ends (answers warn of that), and after expensive work. " +
			"What can't be saved (open files, generators, threads …) is omitted and named in skipped with the reason. Earlier versions are kept until the new one is complete. " +
			"A large state may take several calls: with status \"saving\" (can_continue true) call again with the same arguments and run nothing in between, or it starts again. " +
			"Objects of your own classes and of less common libraries (up to 64 MB each) are loaded once as a test in a forked copy of the kernel; warnings name what failed. Their __setstate__ and constructors run there, including what they do to files or the network. " + pickleWarning,
		openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args saveArgs) (*SavedState, *Problem) {
		got, err := kernelstate.Save(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Keep: int(args.Keep), Until: time.Now().Add(c.waitBudget()),
			Report: c.reportState("the kernel collects its variables"),
		})
		again := command("save_kernel_state", "name", args.Name, "keep_versions", keepValue(args.Keep), "runtime", args.Runtime)
		status, problem := c.stateOutcome(got.Progress, "saved", "saving", err)
		c.checkKernel(got.Execution.KernelID)
		s := newState(args.Name, got.Progress, got.Manifest)
		s.goOn(status == "saving", again)
		s.Skipped, s.SkippedCount = got.Manifest.Skipped, got.Manifest.SkippedCount
		s.fit()
		return &SavedState{Status: status, Path: got.Path, KernelState: s}, problem
	})
}

// keepValue omits the default from a command.
func keepValue(keep int64) any {
	if keep == kernelstate.DefaultKeep {
		return ""
	}
	return keep
}

type restoreArgs struct {
	Name    string `json:"name" min:"1" max:"200" doc:"The name the state was saved under."`
	Version string `json:"version" default:"" max:"100" doc:"Name or number of the version; by default the newest intact one."`
	target
}

// RestoredState is the answer of restore_kernel_state.
type RestoredState struct {
	Status      string   `json:"status" doc:"restored; restoring: not done yet, call again; failed."`
	Overwritten []string `json:"overwritten" doc:"Names that existed in the kernel and were replaced."`
	KernelState
}

func restoreState() tool {
	return define(spec{
		name: "restore_kernel_state", title: "Restore the kernel's variables",
		description: "Load what save_kernel_state saved into the kernel: variables, functions, classes and imports, on the same VM or a new one. Use it when a warning says that the kernel or VM is new, before you continue. " +
			"Names that exist in the kernel are replaced and listed in overwritten. The file's SHA-256 is checked here and on the VM before anything is loaded. If the newest version is damaged, a warning says so and the one before it is loaded; warnings also name differences in Python and library versions. " +
			"A large state may take several calls: with status \"restoring\" (can_continue true) call again with the same arguments. " + pickleWarning,
		destructive: true, idempotent: true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args restoreArgs) (*RestoredState, *Problem) {
		got, err := kernelstate.Restore(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Version: args.Version, Until: time.Now().Add(c.waitBudget()),
			Report: c.reportState("the kernel works on the state"),
		})
		again := command("restore_kernel_state", "name", args.Name, "version", args.Version, "runtime", args.Runtime)
		status, problem := c.stateOutcome(got.Progress, "restored", "restoring", err)
		if errors.Is(err, kernelstate.ErrNotFound) {
			problem = unknownState(c.cfg.CheckpointDir, problem)
		}
		c.kernels.record(c.target.Name, got.Execution.KernelID) // a new one is why this was called
		s := newState(args.Name, got.Progress, got.Manifest)
		s.goOn(status == "restoring", again)
		if got.Done() {
			s.VariableCount, s.Variables, s.Modules = got.Loaded.VariableCount, got.Loaded.Variables, got.Loaded.Modules
			s.Warnings = append(s.Warnings, got.Loaded.Warnings...)
		}
		s.Skipped, s.SkippedCount = got.Loaded.Failed, got.Loaded.FailedCount
		s.fit()
		return &RestoredState{Status: status, Overwritten: firsts(got.Loaded.Overwritten), KernelState: s}, problem
	})
}

// reportState makes the host's progress messages say what the kernel does, and then how
// far the transfer is.
func (c *call) reportState(before string) func(transfer.Progress) {
	var meter progress.Meter
	c.progress.measureWith(func() (string, amount) {
		p, at := meter.Last()
		if at.IsZero() {
			return before, amount{}
		}
		return meter.Describe(time.Now()), amount{p.Done, p.Total}
	})
	return meter.Report
}

// stateOutcome returns the status and the error of an answer.
func (c *call) stateOutcome(p kernelstate.Progress, done, doing string, err error) (string, *Problem) {
	c.warnOfEnd(p.Execution.SessionMinutesLeft)
	switch {
	case err == nil && p.Done():
		return done, nil
	case err == nil:
		return doing, nil
	case p.Execution.ExecutionID != "" && errors.Is(err, context.DeadlineExceeded) && !unreachable(err):
		return doing, nil // only the call's time is over
	}
	problem := problemOf(err)
	if run, ok := errors.AsType[*kernelstate.RunError](err); ok {
		problem = runProblem(run.Execution)
	}
	return "failed", withHintAbout(hint.KernelState, problem, err)
}

// unknownState returns p with a hint that lists the states that exist.
func unknownState(dir string, p *Problem) *Problem {
	if names := kernelstate.Names(dir); len(names) > 0 {
		return p.withHint("Call again with the name of a saved state: " + brief(quotedList(names, "or")))
	}
	return p.withHint("No state is saved on this computer yet: call save_kernel_state first.")
}

func newState(name string, p kernelstate.Progress, m kernelstate.Manifest) KernelState {
	s := KernelState{
		Name: name, Version: m.Version, Created: m.Created, VariableCount: m.VariableCount, Variables: m.Variables, Modules: m.Modules,
		Bytes: m.Bytes, SHA256: m.SHA256, Pickler: m.Pickler, Python: m.Python,
		ExecutionID: p.Execution.ExecutionID, Warnings: append([]string{}, p.Warnings...),
	}
	if !p.Done() {
		s.Doing = doing(p)
	}
	if p.Queued {
		s.Warnings = append(s.Warnings, "another run occupies the kernel; this waits until it has ended")
	}
	return s
}

// doing describes the current step.
func doing(p kernelstate.Progress) string {
	if p.At.Of == 0 {
		return string(p.Phase)
	}
	return fmt.Sprintf("%s: at variable %d of %d, %q", p.Phase, p.At.Number, p.At.Of, p.At.Variable)
}

// goOn sets, if the work is not done, the call that continues it.
func (s *KernelState) goOn(more bool, again string) {
	if more {
		s.CanContinue, s.NextCommand = true, again
	}
}

// fit shortens the lists to the size of an answer; the manifest next to the data is complete.
func (s *KernelState) fit() {
	s.Variables, s.Modules, s.Skipped = firsts(s.Variables), firsts(s.Modules), firsts(s.Skipped)
}

func (s *SavedState) text(b *strings.Builder) {
	s.KernelState.text(b, s.Status)
	if s.Path != "" {
		fmt.Fprintf(b, "Saved in %s\n", s.Path)
	}
}

func (r *RestoredState) text(b *strings.Builder) {
	r.KernelState.text(b, r.Status)
	if len(r.Overwritten) > 0 {
		fmt.Fprintf(b, "Replaced: %s\n", strings.Join(r.Overwritten, ", "))
	}
}

func (s *KernelState) text(b *strings.Builder, status string) {
	fmt.Fprintf(b, "State %q: %s", s.Name, status)
	if s.SHA256 != "" {
		fmt.Fprintf(b, ", version %s of %s, %s, %s, %s, with %s", s.Version, s.Created.UTC().Format(time.RFC3339), plain.Count(s.VariableCount, "variable"), plain.Count(len(s.Modules), "module"), progress.Bytes(s.Bytes), s.Pickler)
	}
	b.WriteString("\n")
	if s.NextCommand != "" && s.Doing != "" {
		fmt.Fprintf(b, "Now %s\n", s.Doing)
	}
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Not done yet: call %s to continue.\n", s.NextCommand)
	}
	for _, l := range s.Skipped {
		fmt.Fprintf(b, "Skipped %s: %s\n", oneLine(l.Name), l.Reason)
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(b, "Note: %s\n", w)
	}
}
