package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

type startVMArgs struct {
	Accelerators string `json:"accelerators" default:"" max:"200" doc:"Tried in turn: T4, L4, G4, A100, H100, V5E1, V6E1, CPU, separated by commas. Empty: no accelerator."`
	HighRAM      bool   `json:"high_ram" default:"false" doc:"More memory; may cost more."`
	Name         string `json:"name" default:"vm" min:"1" max:"64" doc:"Of the VM and of its runtime."`
}

// runtime makes startVMArgs targeted: the runtime does not exist yet.
func (startVMArgs) runtime() string { return "" }

// StartedVM is the answer of start_colab_vm.
type StartedVM struct {
	Starting    bool   `json:"starting"` // the same call waits on
	Step        string `json:"step,omitempty"`
	VM          *vm.VM `json:"vm,omitempty"`
	NextCommand string `json:"next_command,omitempty"`
}

func startVM() tool {
	return define(spec{
		name: "start_colab_vm", title: "Start a Colab VM",
		summary:     "starts a Colab VM with the first accelerator of a list that is free, starts the executor there and pairs it as a runtime",
		description: "Use it only if the user asked for a VM: it uses the user's Google account, and paid accelerators use compute units until stop_colab_vm. Google forbids remote control to accounts without compute units, and may block them. It starts a VM with the executor; its name is the runtime_name for other tools. Until it is ready, call again with the same arguments. A running VM of that name is kept.",
		idempotent:  true, openWorld: true, local: true,
	}, func(ctx context.Context, c *call, args startVMArgs) (*StartedVM, *Problem) {
		c.target = runtimes.Runtime{}
		accelerators, err := vm.ParseAccelerators(args.Accelerators)
		switch {
		case c.cfg.VMs == nil:
			return nil, noVMs
		case err != nil:
			return nil, &Problem{Code: codeBadRequest, Message: "bad arguments: " + err.Error(), Hint: "Call again with accelerators from this list."}
		}
		waiting, done := context.WithTimeout(ctx, c.waitBudget())
		defer done()
		got, err := c.cfg.VMs.Up(waiting, vm.Request{Name: args.Name, Accelerators: accelerators, HighRAM: args.HighRAM}, c.progress.show)
		if still, ok := errors.AsType[*vm.StartingError](err); ok && !errors.Is(ctx.Err(), context.Canceled) {
			return &StartedVM{Starting: true, Step: still.Step, NextCommand: args.again()}, nil
		}
		if err != nil {
			return nil, problemOf(about(hint.VM, "", err))
		}
		c.target.Name = got.Name
		return &StartedVM{VM: &got}, nil
	})
}

func (a startVMArgs) again() string {
	return command("start_colab_vm", "accelerators", a.Accelerators, "high_ram", a.HighRAM, "name", a.Name)
}

func (s *StartedVM) text(b *words) {
	if s.Starting {
		fmt.Fprintf(b, "The VM is still starting: %s. Next step: %s\n", s.Step, s.NextCommand)
		return
	}
	if s.VM != nil {
		fmt.Fprintf(b, "VM %q runs; use it with runtime_name=%q. It runs until stop_colab_vm or until Colab ends it: %s\n%s\n", s.VM.Name, s.VM.Name, vmLine(*s.VM), vm.KeepText)
	}
}

// noVMs answers calls of a relay that has no place to record VMs.
var noVMs = &Problem{Code: codeNotConfigured, Message: "this relay cannot start VMs, because there is no folder for its records", Hint: "Ask the user to set HOME in the relay's environment, and to restart the MCP host."}

// vmProblem translates an error about VMs. Google's services are no executors, so the hints
// of executors do not fit.
func vmProblem(err error) *Problem {
	if errors.Is(err, context.Canceled) {
		return cancelledProblem
	}
	if h, known := hint.ForOperation(err); known {
		return &Problem{Code: h.Code, Message: err.Error(), Hint: h.Model}
	}
	return &Problem{Code: codeInternal, Message: err.Error(), Hint: "list_colab_vms shows what runs. Calling again with the same arguments goes on where it stopped."}
}

type listVMsArgs struct{}

func (listVMsArgs) runtime() string { return "" }

// ListedVMs is the answer of list_colab_vms.
type ListedVMs struct {
	VMs       []vm.VM  `json:"vms,omitzero"`
	Truncated bool     `json:"truncated"` // there are more
	Notes     []string `json:"notes,omitempty"`
}

func listVMs() tool {
	return operation(spec{
		name: "list_colab_vms", title: "List Colab VMs",
		summary:     "lists the VMs that this computer started, also those that Colab ended, and the others of the account",
		description: "Lists the Colab VMs of the user's account. State ready: its runtime can be used.",
		command: Command{Name: "vm list",
			Short:    "List the VMs that this computer started, and others of the account",
			Long:     "List the VMs that this computer started, whether or not Colab still has them, and all others of the account that Google's service shows, such as those of open notebooks.",
			Examples: "  colab-relay vm list\n  colab-relay vm list --json"},
		readOnly: true, idempotent: true, openWorld: true, local: true,
	}, func(ctx context.Context, c *call, _ listVMsArgs) (*ListedVMs, error) {
		if err := c.vmsEnabled(); err != nil {
			return nil, err
		}
		all, err := c.cfg.VMs.List(ctx)
		if err != nil {
			return nil, about(hint.VM, "", err)
		}
		kept := fit(c, all.VMs)
		got := &ListedVMs{VMs: kept, Truncated: len(kept) < len(all.VMs), Notes: all.Notes}
		for _, v := range kept {
			if v.Note != "" && v.State != vm.StateReady {
				got.Notes = append(got.Notes, fmt.Sprintf("%s: %s", plain.Quote(cmp.Or(v.Name, v.ID)), plain.Line(v.Note)))
			}
		}
		if c.person == nil {
			got.Notes = append(got.Notes, nextSteps(kept)...)
		}
		return got, nil
	})
}

// stateSteps say what a model can do about a VM in a state.
var stateSteps = map[vm.State]string{
	vm.StateInterrupted: "it may use compute units: start_colab_vm with its name and accelerators goes on with the start, and stop_colab_vm stops it.",
	vm.StateUnpaired:    "start_colab_vm with its name and accelerators pairs it again, but starts its executor anew: the variables there are lost. stop_colab_vm stops it.",
	vm.StateNotFound:    "stop_colab_vm removes it from the list once it is certain that it was not created.",
	vm.StateEnded:       "stop_colab_vm removes it from the list; start_colab_vm with its name starts another VM.",
	vm.StateStopping:    "call stop_colab_vm again, until it reports that the VM is gone.",
	vm.StateLost:        "it may use compute units. Ask the user; stop_colab_vm with its id and force=true stops it.",
}

// nextSteps returns the step for each state of these VMs, once.
func nextSteps(all []vm.VM) (notes []string) {
	said := map[vm.State]bool{}
	for _, v := range all {
		if step := stateSteps[v.State]; step != "" && !said[v.State] {
			said[v.State] = true
			notes = append(notes, fmt.Sprintf("State %q: %s", v.State, step))
		}
	}
	return notes
}

// vmsEnabled says how to enable VMs, unless they are, or there are some to see.
func (c *call) vmsEnabled() error {
	c.target = runtimes.Runtime{}
	if c.cfg.VMs == nil {
		return noVMs
	}
	if err := c.cfg.VMs.Enabled(); err != nil && c.person == nil && len(c.cfg.VMs.Names()) == 0 {
		return err
	}
	return nil
}

func (l *ListedVMs) text(w *words) {
	switch {
	case len(l.VMs) == 0 && len(l.Notes) > 0:
		w.note("no VMs to show; the other notes say what may be missing")
	case len(l.VMs) == 0:
		w.note("no VMs%s", w.either("", ": `colab-relay vm up` starts one"))
	default:
		table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "HARDWARE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "REQUESTED"}, terminal.Column{Title: "UNTIL"}, terminal.Column{Title: "REACHED BY"}, terminal.Column{Title: "ID"})
		for _, v := range l.VMs {
			table.Add(v.Name, v.Hardware(), string(v.State), w.when(v.Asked), w.when(v.Expires), string(v.Via), v.ID)
		}
		w.table("VMs", table)
	}
	if l.Truncated {
		w.note("There are more; the first %d are listed.", len(l.VMs))
	}
	w.notes(l.Notes)
}

// vmLine describes a VM.
func vmLine(v vm.VM) string {
	line := fmt.Sprintf("%s %s: %s, %s", inline(v.Name), inline(v.ID), inline(string(v.Accelerator)), inline(string(v.State)))
	if v.HighRAM {
		line += ", high RAM"
	}
	if v.Via != "" {
		line += ", reached by " + inline(string(v.Via))
	}
	if !v.Expires.IsZero() {
		line += ", until " + v.Expires.UTC().Format(time.RFC3339)
	}
	if v.Note != "" && v.State != vm.StateReady {
		line += " (" + plain.Line(v.Note) + ")"
	}
	return strings.TrimSpace(line)
}

type stopVMArgs struct {
	ID    string `json:"id" arg:"NAME" complete:"vms" min:"1" max:"200" doc:"The VM's id or name."`
	Force bool   `json:"force" flag:"force" usage:"also stop a VM that this computer did not start" default:"false" doc:"Also a VM that this computer did not start, if the user said so."`
}

func (stopVMArgs) runtime() string { return "" }

// StoppedVM is the answer of stop_colab_vm.
type StoppedVM struct {
	VM *vm.VM `json:"vm,omitempty"`
}

func stopVM() tool {
	return operation(spec{
		name: "stop_colab_vm", title: "Stop a Colab VM",
		summary:     "stops a VM and waits until Google no longer lists it; others' VMs only with `force`",
		description: "Use it when the user no longer needs the VM: everything on it is lost (save_kernel_state and download_from_colab first). It returns when the VM is gone.",
		command: Command{Name: "vm down",
			Short: "Stop a VM; everything on it is lost",
			Long: "Stop a VM and wait until Google no longer lists it. Everything on it is lost, and its pairing is removed. NAME is the VM's name or its id, as `colab-relay vm list` shows them. It also ends a start in progress, and removes a VM from the list that Colab has ended or never created.\n" +
				"A VM that this computer did not start, such as that of an open notebook, is stopped only with --force and its id.",
			Examples: "  colab-relay vm down vm\n  colab-relay vm down --force m-s-1a2b3c"},
		destructive: true, idempotent: true, openWorld: true, local: true,
	}, func(ctx context.Context, c *call, args stopVMArgs) (*StoppedVM, error) {
		if err := c.vmsEnabled(); err != nil {
			return nil, err
		}
		c.progress.show("stopping the VM")
		waiting, done := c.within(ctx)
		defer done()
		got, err := c.cfg.VMs.Down(waiting, args.ID, args.Force)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			return nil, &Problem{Code: hint.CodeBusy, Message: "the VM is being stopped, but is not gone yet", Hint: "Call stop_colab_vm again with the same arguments, until it reports that the VM is gone."}
		}
		if err != nil {
			return nil, about(hint.VM, "", err)
		}
		return &StoppedVM{VM: &got}, nil
	})
}

// within returns the time that a tool has for something long. A person waits.
func (c *call) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.person != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.waitBudget())
}

func (s *StoppedVM) text(w *words) {
	fmt.Fprintf(w, "VM %s (%s) is stopped: Google no longer lists it.\n", inline(cmp.Or(s.VM.Name, s.VM.ID)), s.VM.Hardware())
}
