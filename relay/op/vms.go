package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/shared/filename"
)

type startVMArgs struct {
	Accelerators string `json:"accelerators" default:"" max:"200" doc:"Tried in turn: T4, L4, G4, A100, H100, V5E1, V6E1, CPU, separated by commas. Empty: no accelerator." flag:"gpu" usage:"the 'ACCELERATORS' to try: T4, L4, G4, A100, H100, V5E1, V6E1 or CPU, separated by commas"`
	HighRAM      bool   `json:"high_ram" default:"false" doc:"More memory; may cost more." flag:"high-ram" usage:"ask for a VM with more memory"`
	Name         string `json:"name" default:"vm" min:"1" max:"64" doc:"Of the VM and of its runtime." flag:"name" usage:"'NAME' of the VM and of the runtime"`
	Backend      string `json:"-" default:"" choices:"cli,api" flag:"backend" usage:"how the VM is started: 'cli' or api (default the one of colab-relay vm login)"`
	Tunnel       string `json:"-" default:"" flag:"tunnel" usage:"how the executor is reached: 'proxy', ngrok or cloudflared (default the first that works)"`
	Executor     string `json:"-" default:"" flag:"executor" usage:"upload this 'FILE' instead of the executor of the release"`
}

// runtime makes startVMArgs targeted: the runtime does not exist yet.
func (startVMArgs) runtime() string { return "" }

// request checks what is asked for.
func (a *startVMArgs) request() (r vm.Request, err error) {
	r = vm.Request{Name: a.Name, HighRAM: a.HighRAM, Backend: a.Backend}
	if r.Accelerators, err = vm.ParseAccelerators(a.Accelerators); err != nil {
		return r, &ArgumentError{"accelerators", "gpu", err}
	}
	if r.Way, err = vm.ParseWay(a.Tunnel); err != nil {
		return r, &ArgumentError{"", "tunnel", err}
	}
	if a.Executor == "" {
		return r, nil
	}
	if a.Executor, err = filename.Existing(a.Executor); err != nil {
		return r, &ArgumentError{"", "executor", err}
	}
	_, err = vm.FileProgram(a.Executor, "") // not after minutes
	return r, err
}

// StartedVM is the answer of start_colab_vm.
type StartedVM struct {
	Starting    bool   `json:"starting"` // the same call waits on
	Step        string `json:"step,omitempty"`
	VM          *vm.VM `json:"vm,omitempty"`
	NextCommand string `json:"next_command,omitempty"`
}

func startVM() Operation {
	return operation(spec{
		title:       "Start a Colab VM",
		description: "Use it only if the user asked for a VM: it uses the user's Google account, and paid accelerators use compute units until stop_colab_vm. Google forbids remote control to accounts without compute units, and may block them. It starts a VM with the executor; its name is the runtime_name for other tools. Until it is ready, call again with the same arguments. A running VM of that name is kept.",
		Command: Command{
			Short: "Start a VM with the executor, and pair this computer with it",
			Long: "Start a VM, start the executor there, and pair this computer with it. The accelerators of --gpu are tried in turn; without --gpu, the VM has none, and the list may also contain CPU.\n" +
				"The same command goes on with a start that was interrupted, and starts the executor again if it has ended. If the VM runs and its executor answers, nothing is changed.\n" +
				"The executor is reached through Google's proxy where that works, else by ngrok if NGROK_AUTHTOKEN is set, else by cloudflared if the VM has that program. --tunnel chooses one of them; without NGROK_AUTHTOKEN, --backend cli needs --tunnel cloudflared.",
			Examples: "  colab-relay vm up\n  colab-relay vm up --gpu T4,L4,A100 --high-ram\n  colab-relay vm up --gpu A100 --name training"},
	}, func(ctx context.Context, c *call, args startVMArgs) (*StartedVM, error) {
		request, err := args.request()
		if err != nil {
			return nil, err
		}
		vms, err := c.vms(args.Executor)
		if err != nil {
			return nil, err
		}
		waiting, done := c.within(ctx)
		defer done()
		got, err := vms.Up(waiting, request, c.step)
		if still, ok := errors.AsType[*vm.StartingError](err); ok && c.person != nil {
			return nil, fmt.Errorf("interrupted while VM %q was starting (%s): %w", still.Name, still.Step, vm.ErrInterrupted)
		} else if ok && !errors.Is(ctx.Err(), context.Canceled) {
			return &StartedVM{Starting: true, Step: still.Step, NextCommand: c.again()}, nil
		}
		if err != nil {
			return nil, hint.With(hint.VM, "", err)
		}
		c.target.Name = got.Name
		return &StartedVM{VM: &got}, nil
	})
}

func (s *StartedVM) text(w *words) {
	if s.Starting {
		fmt.Fprintf(w, "The VM is still starting: %s. Next step: %s\n", s.Step, s.NextCommand)
		return
	}
	fmt.Fprintf(w, "VM %q (%s) runs and is paired as runtime %[1]q, reached by %s.\n", s.VM.Name, s.VM.Hardware(), inline(string(s.VM.Via)))
	w.note("It runs, and may use compute units, until %s or until Colab ends it. %s", w.either("stop_colab_vm", "`colab-relay vm down "+s.VM.Name+"`"), vm.KeepText)
}

// noVMs answers calls of a relay that has no place to record VMs.
var noVMs = &Problem{Code: codeNotConfigured, Message: "this relay cannot start VMs, because there is no folder for its records", Hint: "Ask the user to set HOME in the relay's environment, and to restart the MCP host."}

type listVMsArgs struct{}

func (listVMsArgs) runtime() string { return "" }

// ListedVMs is the answer of list_colab_vms.
type ListedVMs struct {
	VMs       []vm.VM  `json:"vms,omitzero"`
	Truncated bool     `json:"truncated"` // there are more
	Notes     []string `json:"notes,omitempty"`
}

func listVMs() Operation {
	return operation(spec{
		title:       "List Colab VMs",
		description: "Lists the Colab VMs of the user's account. State ready: its runtime can be used.",
		Command: Command{
			Short:    "List the VMs that this computer started, and others of the account",
			Long:     "List the VMs that this computer started, whether or not Colab still has them, and all others of the account that Google's service shows, such as those of open notebooks.",
			Examples: "  colab-relay vm list\n  colab-relay vm list --json"},
	}, func(ctx context.Context, c *call, _ listVMsArgs) (*ListedVMs, error) {
		vms, err := c.enabledVMs()
		if err != nil {
			return nil, err
		}
		all, err := vms.List(ctx)
		if err != nil {
			return nil, hint.With(hint.VM, "", err)
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

// vms returns what starts VMs. executor is the file of the executor for them; empty for that of the
// release.
func (c *call) vms(executor string) (*vm.Manager, error) {
	c.target = runtimes.Runtime{}
	switch {
	case c.person != nil:
		return c.person.VMs(executor), nil
	case c.cfg.VMs == nil:
		return nil, noVMs
	}
	return c.cfg.VMs, nil
}

// enabledVMs is vms for what needs VMs to exist: it says how to enable them, unless they are, or
// there are some to see.
func (c *call) enabledVMs() (*vm.Manager, error) {
	vms, err := c.vms("")
	if err != nil || c.person != nil || len(vms.Names()) > 0 {
		return vms, err
	}
	return vms, vms.Enabled()
}

func (l *ListedVMs) text(w *words) {
	switch {
	case len(l.VMs) == 0 && len(l.Notes) > 0:
		w.note("no VMs to show; the other notes say what may be missing")
	case len(l.VMs) == 0:
		w.note("no VMs%s", w.either("", ": `colab-relay vm up` starts one"))
	default:
		table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "HARDWARE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "REQUESTED"}, terminal.Column{Title: "REACHED BY"}, terminal.Column{Title: "ID"})
		for _, v := range l.VMs {
			table.Add(v.Name, v.Hardware(), string(v.State), w.when(v.Asked), string(v.Via), v.ID)
		}
		w.table("VMs", table)
	}
	if l.Truncated {
		w.note("There are more; the first %d are listed.", len(l.VMs))
	}
	w.notes(l.Notes)
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

func stopVM() Operation {
	return operation(spec{
		title:       "Stop a Colab VM",
		description: "Use it when the user no longer needs the VM: everything on it is lost (save_kernel_state and download_from_colab first). It returns when the VM is gone.",
		Command: Command{
			Short: "Stop a VM; everything on it is lost",
			Long: "Stop a VM and wait until Google no longer lists it. Everything on it is lost, and its pairing is removed. NAME is the VM's name or its id, as `colab-relay vm list` shows them. It also ends a start in progress, and removes a VM from the list that Colab has ended or never created.\n" +
				"A VM that this computer did not start, such as that of an open notebook, is stopped only with --force and its id.",
			Examples: "  colab-relay vm down vm\n  colab-relay vm down --force m-s-1a2b3c"},
	}, func(ctx context.Context, c *call, args stopVMArgs) (*StoppedVM, error) {
		vms, err := c.enabledVMs()
		if err != nil {
			return nil, err
		}
		c.step("stopping the VM")
		waiting, done := c.within(ctx)
		defer done()
		got, err := vms.Down(waiting, args.ID, args.Force)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			return nil, &Problem{Code: hint.CodeBusy, Message: "the VM is being stopped, but is not gone yet", Hint: "Call stop_colab_vm again with the same arguments, until it reports that the VM is gone."}
		}
		if err != nil {
			return nil, hint.With(hint.VM, "", err)
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
