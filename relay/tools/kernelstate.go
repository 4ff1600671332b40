package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
)

type saveArgs struct {
	Name string `json:"name" min:"1" max:"200" doc:"Name of the state; saving under it again adds a version."`
	Keep int64  `json:"keep_versions" default:"3" min:"1" max:"100" doc:"Versions to keep; older ones are deleted."`
	target
}

// KernelState is the common part of the answers of save_kernel_state and restore_kernel_state.
type KernelState struct {
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

// SavedState is the answer of save_kernel_state.
type SavedState struct {
	Status string `json:"status"`         // saved; saving: not done yet, call again; failed
	Path   string `json:"path,omitempty"` // the version's folder on the relay's machine
	KernelState
}

func saveState() tool {
	return define(spec{
		name: "save_kernel_state", title: "Save the kernel's variables",
		summary:     "saves the kernel's variables on the laptop, in versions",
		description: "Use it before a VM ends (answers warn of that) and after expensive work: it saves variables, functions, classes and imports on this computer for restore_kernel_state; the answer names what can't be saved. With status saving, call again with the same arguments and run nothing in between.",
		openWorld:   true, bulk: true,
	}, func(ctx context.Context, c *call, args saveArgs) (*SavedState, *Problem) {
		got, err := kernelstate.Save(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Keep: int(args.Keep), Until: time.Now().Add(c.waitBudget()),
			Report: c.reportState("the kernel collects its variables"),
		})
		again := command("save_kernel_state", "name", args.Name, "keep_versions", keepValue(args.Keep), "runtime_name", args.Runtime)
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
	Name    string `json:"name" min:"1" max:"200" doc:"Name of the saved state."`
	Version string `json:"version" default:"" max:"100" doc:"Name or number of a version; by default the newest intact one."`
	target
}

// RestoredState is the answer of restore_kernel_state.
type RestoredState struct {
	Status      string   `json:"status"`               // restored; restoring: not done yet, call again; failed
	Overwritten []string `json:"overwritten,omitzero"` // names that existed in the kernel and were replaced
	KernelState
}

func restoreState() tool {
	return define(spec{
		name: "restore_kernel_state", title: "Restore the kernel's variables",
		summary:     "restores saved variables in any kernel, also on a new VM",
		description: "Use it when a warning says that the kernel or VM is new: it loads what save_kernel_state saved. Names that exist in the kernel are replaced. With status restoring, call again with the same arguments.",
		destructive: true, idempotent: true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args restoreArgs) (*RestoredState, *Problem) {
		got, err := kernelstate.Restore(ctx, c.target.Client, c.cfg.CheckpointDir, kernelstate.Options{
			Name: args.Name, Runtime: c.target.Name, Version: args.Version, Until: time.Now().Add(c.waitBudget()),
			Report: c.reportState("the kernel works on the state"),
		})
		again := command("restore_kernel_state", "name", args.Name, "version", args.Version, "runtime_name", args.Runtime)
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
	if run, ok := errors.AsType[*kernelcall.EndedError](err); ok {
		problem = runProblem(run.Last)
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
	if b := client.BehindInput(p.Execution); b != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("this waits for %s. %s", hint.Asking(b), hint.ForPrompt(b).Model))
	} else if p.Queued {
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

func (s *SavedState) text(b *words) {
	s.KernelState.text(b, s.Status)
	if s.Path != "" {
		fmt.Fprintf(b, "Saved in %s\n", s.Path)
	}
}

func (r *RestoredState) text(b *words) {
	r.KernelState.text(b, r.Status)
	if len(r.Overwritten) > 0 {
		fmt.Fprintf(b, "Replaced: %s\n", inlineList(r.Overwritten))
	}
}

func (s *KernelState) text(b *words, status string) {
	fmt.Fprintf(b, "State %q: %s", s.Name, status)
	if s.SHA256 != "" {
		fmt.Fprintf(b, ", version %s of %s, %s, %s, %s, with %s", inline(s.Version), s.Created.UTC().Format(time.RFC3339), plain.Count(s.VariableCount, "variable"), plain.Count(len(s.Modules), "module"), progress.Bytes(s.Bytes), inline(s.Pickler))
	}
	b.WriteString("\n")
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Not done yet. Next step: %s\n", s.NextCommand)
	}
	b.notes(s.Warnings)
	if s.NextCommand != "" {
		b.quote("now", s.Doing)
	}
	var names, skipped strings.Builder
	for _, v := range s.Variables {
		fmt.Fprintf(&names, "%s: %s", oneLine(v.Name), oneLine(v.Type))
		if v.Bytes > 0 {
			fmt.Fprintf(&names, ", %s", progress.Bytes(v.Bytes))
		}
		names.WriteString("\n")
	}
	for _, m := range s.Modules {
		fmt.Fprintf(&names, "%s: module\n", oneLine(m.Name))
	}
	for _, l := range s.Skipped {
		fmt.Fprintf(&skipped, "%s: %s\n", oneLine(l.Name), l.Reason)
	}
	b.quote("variables", names.String())
	b.quote(fmt.Sprintf("skipped: %d", s.SkippedCount), skipped.String())
}
