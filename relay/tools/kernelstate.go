package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
)

// pickleWarning stands in both descriptions.
const pickleWarning = "The state is a pickle, and a pickle runs code when it is loaded: only states that this relay itself saved here are ever loaded; never put a stranger's files into CHECKPOINT_DIR/state. "

type saveArgs struct {
	Name string `json:"name" min:"1" max:"200" doc:"Under this name the state is kept on this computer. The same name again adds a version."`
	Keep int64  `json:"keep_versions" default:"3" min:"1" max:"100" doc:"How many versions stay; older ones are dropped once the new one is whole."`
	target
}

// KernelState is what save_kernel_state and restore_kernel_state have in common.
type KernelState struct {
	Name          string                 `json:"name"`
	Version       string                 `json:"version" doc:"Of the state; empty until it is known."`
	Created       time.Time              `json:"created" doc:"When the variables were as they are in this version."`
	VariableCount int                    `json:"variable_count"`
	Variables     []kernelstate.Variable `json:"variables" doc:"Name, type and bytes; what variables share counts at one of them. At most 36 kB of them are listed."`
	Modules       []kernelstate.Module   `json:"modules" doc:"Names that come back as imports."`
	SkippedCount  int                    `json:"skipped_count"`
	Skipped       []kernelstate.Omission `json:"skipped" doc:"What could not be kept or brought back, each with the reason."`
	Bytes         int64                  `json:"bytes" doc:"Of the data file."`
	SHA256        string                 `json:"sha256" doc:"Of the data file, compared on both sides."`
	Pickler       string                 `json:"pickler" doc:"dill, cloudpickle, or pickle, which loses functions and classes defined in the notebook."`
	Python        string                 `json:"python" doc:"Version of the kernel's Python."`
	ExecutionID   string                 `json:"execution_id" doc:"The kernel's part of the work; interrupt_execution ends it."`
	Doing         string                 `json:"doing" doc:"What is under way, and where one variable takes long, which; empty when it is done."`
	Warnings      []string               `json:"warnings"`
	CanContinue   bool                   `json:"can_continue" doc:"It is not done; the same call goes on."`
	NextCommand   string                 `json:"next_command" doc:"The next step; empty when it is done."`
}

// SavedState is what save_kernel_state answers with.
type SavedState struct {
	Status string `json:"status" doc:"saved; saving: not done yet, call again; failed."`
	Path   string `json:"path" doc:"The version's folder on the relay's machine."`
	KernelState
}

func saveState() tool {
	return define(spec{
		name: "save_kernel_state", title: "Save the kernel's variables",
		description: "Keep all variables, functions, classes and imports of the kernel on this computer, so that restore_kernel_state can bring them into a kernel of another VM. Use it before a VM ends (answers warn of that), and after expensive work. " +
			"What can't be kept (open files, generators, threads …) is left out and named in skipped with the reason. Earlier versions stay until the new one is whole. " +
			"A large state may take several calls: with status \"saving\" (can_continue true) call again with the same arguments and run nothing in between, or it begins anew. " +
			"Objects of own classes and rarer libraries (up to 64 MB each) are loaded once for a trial in a forked copy of the kernel; warnings name what failed. Their __setstate__ and constructors run there, with what these do to files or the network. " + pickleWarning,
		openWorld: true,
	}, func(ctx context.Context, c *call, args saveArgs) (*SavedState, *Problem) {
		got, err := kernelstate.Save(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Keep: int(args.Keep), Until: time.Now().Add(c.waitBudget()),
			Report: c.tellState("the kernel collects its variables"),
		})
		again := command("save_kernel_state", argumentValue{"name", args.Name}, keepValue(args.Keep), argumentValue{"runtime", args.Runtime})
		status, problem := c.stateOutcome(got.Progress, "saved", "saving", err)
		c.checkKernel(got.Execution.KernelID)
		s := newState(args.Name, got.Progress, got.Manifest)
		s.goOn(status == "saving", again)
		s.Skipped, s.SkippedCount = got.Manifest.Skipped, got.Manifest.SkippedCount
		s.fit()
		return &SavedState{Status: status, Path: got.Path, KernelState: s}, problem
	})
}

// keepValue leaves the default out of a command.
func keepValue(keep int64) argumentValue {
	if keep == kernelstate.DefaultKeep {
		return argumentValue{"keep_versions", ""}
	}
	return argumentValue{"keep_versions", keep}
}

type restoreArgs struct {
	Name    string `json:"name" min:"1" max:"200" doc:"The name the state was saved under."`
	Version string `json:"version" default:"" max:"100" doc:"Which version, by its name or number; left out: the newest good one."`
	target
}

// RestoredState is what restore_kernel_state answers with.
type RestoredState struct {
	Status      string   `json:"status" doc:"restored; restoring: not done yet, call again; failed."`
	Overwritten []string `json:"overwritten" doc:"Names that the kernel had before and that were replaced."`
	KernelState
}

func restoreState() tool {
	return define(spec{
		name: "restore_kernel_state", title: "Restore the kernel's variables",
		description: "Bring what save_kernel_state kept into the kernel: variables, functions, classes and imports, into the same VM or a new one. Use it when a warning says that the kernel or VM is new, before the work goes on. " +
			"Names the kernel has already are replaced and listed in overwritten. The file's SHA-256 is checked here and on the VM before anything is loaded; a damaged newest version is told and the one before it taken; differences of Python and library versions are told. " +
			"A large state may take several calls: with status \"restoring\" (can_continue true) call again with the same arguments. " + pickleWarning,
		destructive: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args restoreArgs) (*RestoredState, *Problem) {
		got, err := kernelstate.Restore(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Version: args.Version, Until: time.Now().Add(c.waitBudget()),
			Report: c.tellState("the kernel works on the state"),
		})
		again := command("restore_kernel_state", argumentValue{"name", args.Name}, argumentValue{"version", args.Version}, argumentValue{"runtime", args.Runtime})
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

// tellState makes the host's progress tell what the kernel does, and then how far the
// transfer is.
func (c *call) tellState(before string) func(transfer.Progress) {
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

// stateOutcome is the status and the error of an answer.
func (c *call) stateOutcome(p kernelstate.Progress, done, doing string, err error) (string, *Problem) {
	c.warnOfEnd(p.Execution.SessionMinutesLeft)
	switch {
	case err == nil && p.Done():
		return done, nil
	case err == nil:
		return doing, nil
	case p.Execution.ExecutionID != "" && errors.Is(err, context.DeadlineExceeded) && !unreachable(err):
		return doing, nil // the call's time is over, no more
	}
	return "failed", stateProblem(err)
}

// stateProblem is problemOf an error of a save or restore.
func stateProblem(err error) *Problem {
	p := problemOf(err)
	var run *kernelstate.RunError
	if errors.As(err, &run) {
		p = runProblem(run.Execution)
	}
	return withHintAbout(hint.KernelState, p, err)
}

// unknownState tells the names there are.
func unknownState(dir string, p *Problem) *Problem {
	told := *p
	names := kernelstate.Names(dir)
	told.Hint = "No state is saved on this computer yet: call save_kernel_state first."
	if len(names) > 0 {
		told.Hint = "Call again with one of the names there are: " + brief(fmt.Sprintf("%q", names))
	}
	return &told
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
		s.Warnings = append(s.Warnings, "another run holds the kernel; this waits behind it")
	}
	return s
}

// doing is where the work stands, in words.
func doing(p kernelstate.Progress) string {
	if p.At.Of == 0 {
		return string(p.Phase)
	}
	return fmt.Sprintf("%s: at variable %d of %d, %q", p.Phase, p.At.Number, p.At.Of, p.At.Variable)
}

// goOn tells, where the work is not done, the call that goes on with it.
func (s *KernelState) goOn(more bool, again string) {
	if more {
		s.CanContinue, s.NextCommand = true, again
	}
}

// fit keeps the lists within an answer; the manifest beside the data has all.
func (s *KernelState) fit() {
	s.Variables, _ = fitList(s.Variables)
	s.Modules, _ = fitList(s.Modules)
	s.Skipped, _ = fitList(s.Skipped)
}

// firsts are as many of a list of names as fit an answer.
func firsts(names []string) []string {
	kept, _ := fitList(names)
	return kept
}

func (s *SavedState) text(b *strings.Builder) {
	s.KernelState.text(b, s.Status)
	if s.Path != "" {
		fmt.Fprintf(b, "Kept in %s\n", s.Path)
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
		fmt.Fprintf(b, ", version %s of %s, %d variables, %d modules, %s, with %s", s.Version, s.Created.UTC().Format(time.RFC3339), s.VariableCount, len(s.Modules), progress.Bytes(s.Bytes), s.Pickler)
	}
	b.WriteString("\n")
	if s.NextCommand != "" && s.Doing != "" {
		fmt.Fprintf(b, "Now %s\n", s.Doing)
	}
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Not done yet: call %s to go on.\n", s.NextCommand)
	}
	for _, l := range s.Skipped {
		fmt.Fprintf(b, "Left out %s: %s\n", oneLine(l.Name), l.Reason)
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(b, "Note: %s\n", w)
	}
}
