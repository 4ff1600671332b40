package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type getArgs struct {
	ID     string  `json:"execution_id" min:"1" max:"200" doc:"From an answer or list_executions."`
	Offset int64   `json:"offset" default:"0" min:"0" doc:"First event to read: next_offset of the last answer; 0 for all."`
	Wait   float64 `json:"wait_seconds" default:"0" min:"0" doc:"How long to wait for the end, usually at most 45."`
	target
}

func getExecution() tool {
	return define(spec{
		name: "get_execution", title: "Read a run's output",
		summary:     "returns a run's state and its output from an offset; can wait for more",
		description: "Use it when a run is still running, queued or waiting for input, and to read output that an answer omitted. With wait_seconds it waits for the end of the run and shows head and tail of the output from offset on. With wait_seconds=0 it returns one page of the whole output; call again with offset=next_offset while truncated is true, and nothing is missing.",
		readOnly:    true, idempotent: true, openWorld: true, upfront: true,
	}, func(ctx context.Context, c *call, args getArgs) (*Run, *Problem) {
		wait := min(time.Duration(min(args.Wait, 3600)*float64(time.Second)), c.waitBudget())
		until := time.Now().Add(wait)
		e, err := c.target.Client.Execution(client.WithBehindInput(ctx), args.ID, args.Offset, min(wait, contract.MaxWait), firstBytes)
		if err != nil {
			return nil, problemOn(hint.Execution, args.ID, err)
		}
		r, page := c.readAs(e, args)
		defer r.col.Close()
		o := client.FollowOptions{MaxBytes: contract.MaxReadBytes}
		switch {
		case page:
			o = client.FollowOptions{Available: true, FirstBytes: firstBytes, MaxBytes: pageBytes}
		case r.col.HasSaved(): // only the head: what follows it is saved already
			o.FirstBytes = firstBytes
		}
		followed := r.followAsking(ctx, e, until, o)
		c.checkKernelOf(ctx, r.exec)
		run, problem := r.finish(ctx, followed)
		if name := c.saves.get(c.target.Name, args.ID); name != "" && args.Offset == 0 && r.exec.Status.Finished() {
			c.saveLater(run, problem, name)
		}
		return run, problem
	})
}

// A page shows some KiB, which the first answer usually contains. Folded progress bars may
// need more; each further answer may be twice as long.
const (
	firstBytes = 16 << 10
	pageBytes  = 128 << 10
)

// readAs starts reading the execution of the answer e. It reads a page if the caller wants
// one, or if the run has finished and its text from the offset on is saved: then an earlier
// answer showed the tail and named the file.
func (c *call) readAs(e contract.Execution, args getArgs) (r *reading, page bool) {
	if args.Wait > 0 {
		r = c.read(args.ID, render.Options{From: args.Offset})
		if args.Offset == 0 || !e.Status.Finished() || !r.col.HasSaved() {
			return r, false
		}
		r.col.Close()
	}
	return c.read(args.ID, render.Options{From: args.Offset, Page: true}), true
}

type listArgs struct {
	Limit int64 `json:"limit" default:"20" min:"1" max:"1000" doc:"How many runs to list at most."`
	target
}

// Executions is the answer of list_executions.
type Executions struct {
	Executions []Listed `json:"executions,omitzero"` // newest first
	Truncated  bool     `json:"truncated"`           // not all of them fit into the answer
}

// Listed is one line of list_executions.
type Listed struct {
	ExecutionID      string    `json:"execution_id"`
	RequestID        string    `json:"request_id"`
	Status           string    `json:"status"`
	CreatedAt        time.Time `json:"created_at"`
	ExecutionTimeSec *float64  `json:"execution_time_sec,omitzero"`
	CodePreview      string    `json:"code_preview"`
}

func listExecutions() tool {
	return define(spec{
		name: "list_executions", title: "List runs",
		summary:     "lists past and present runs, newest first",
		description: "Use it to find an execution_id again, to see what runs or waits on the VM, or to check whether a run whose answer was lost was accepted.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args listArgs) (*Executions, *Problem) {
		list, err := c.target.Client.List(ctx, int(args.Limit))
		if err != nil {
			return nil, problemOf(err)
		}
		all := make([]Listed, 0, len(list.Executions))
		for i, e := range list.Executions {
			if i == 0 { // all have the same value
				c.warnOfEnd(e.SessionMinutesLeft)
			}
			all = append(all, Listed{e.ExecutionID, e.RequestID, string(e.Status), e.CreatedAt, seconds(e), e.CodePreview})
		}
		kept, cut := fitList(all)
		return &Executions{Executions: kept, Truncated: cut}, nil
	})
}

func (l *Executions) text(b *strings.Builder) {
	if len(l.Executions) == 0 {
		b.WriteString("No runs yet.\n")
	}
	for _, e := range l.Executions {
		took := ""
		if e.ExecutionTimeSec != nil {
			took = fmt.Sprintf(" %.3g s", *e.ExecutionTimeSec)
		}
		fmt.Fprintf(b, "%s  %s%s  %s  %s\n", e.ExecutionID, e.Status, took, e.CreatedAt.UTC().Format(time.RFC3339), e.CodePreview)
	}
}

// Standing is the answer of tools that act on an execution: its status afterwards.
type Standing struct {
	ExecutionID string `json:"execution_id"`
	Status      string `json:"status"`
	Reason      string `json:"reason,omitempty"`       // the reason for the status, if there is one
	NextCommand string `json:"next_command,omitempty"` // what to call next, if the run has not ended
}

// standing is the answer about the run id, with the result of the request.
func (c *call) standing(id string, e contract.Execution, err error) (*Standing, *Problem) {
	if err != nil {
		return nil, problemOn(hint.Execution, id, err)
	}
	c.warnOfEnd(e.SessionMinutesLeft)
	s := &Standing{ExecutionID: e.ExecutionID, Status: string(e.Status), Reason: e.Reason}
	if !e.Status.Finished() {
		s.NextCommand = command("get_execution", "execution_id", id, "wait_seconds", c.waitSeconds(), "runtime", c.asked)
	}
	return s, nil
}

func (s *Standing) text(b *strings.Builder) {
	fmt.Fprintf(b, "Run %s: %s\n%s", s.ExecutionID, s.Status, ensureLine(s.Reason))
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Next: %s\n", s.NextCommand)
	}
}

type interruptArgs struct {
	ID string `json:"execution_id" min:"1" max:"200" doc:"From an answer or list_executions."`
	target
}

func interruptExecution() tool {
	return define(spec{
		name: "interrupt_execution", title: "Interrupt a run",
		summary:     "interrupts a run or removes it from the queue; variables are kept",
		description: "Use it to stop a run that hangs or is no longer needed, as a notebook's stop button does. Variables are kept; a queued run is cancelled. If the run ignores it, call restart_kernel.",
		destructive: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args interruptArgs) (*Standing, *Problem) {
		e, err := c.target.Client.Interrupt(ctx, args.ID)
		return c.standing(args.ID, e, err)
	})
}

type inputArgs struct {
	ID   string `json:"execution_id" min:"1" max:"200" doc:"The run whose status is waiting_for_input."`
	Text string `json:"text" max:"100000" doc:"What to type, without the line break."`
	target
}

func provideInput() tool {
	return define(spec{
		name: "provide_input", title: "Answer input()",
		summary:     "answers a run that waits in `input()`",
		description: "Use it when a run's status is waiting_for_input, to type the line that its input() asks for. Then call get_execution with wait_seconds. A password is refused: the user types it with `colab-relay input ID`.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, args inputArgs) (*Standing, *Problem) {
		e, err := c.target.Client.Input(ctx, args.ID, contract.Input{Text: args.Text})
		return c.standing(args.ID, e, err)
	})
}
