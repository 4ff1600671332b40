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
	ID     string  `json:"execution_id" min:"1" max:"200" doc:"From an earlier answer or list_executions."`
	Offset int64   `json:"offset" default:"0" min:"0" doc:"First event to read: next_offset of the answer before, 0 for all."`
	Wait   float64 `json:"wait_seconds" default:"0" min:"0" doc:"How long to wait for the end, at most the relay's own limit (45 by default)."`
	target
}

func getExecution() tool {
	return define(spec{
		name: "get_execution", title: "Read a run's output",
		description: "Read the status of a run and its output from offset on. Use it after run_code_quick or run_code_long answered \"running\" or \"queued\" or was truncated, and to page through long output. " +
			"With wait_seconds it waits until the run ends, asks for input, or the time is over, and shows the head and tail of the output; output that an earlier call showed and saved to a file is not fetched again. " +
			"With wait_seconds=0 it answers immediately with one page of whole events: call it again with offset=next_offset while truncated is true, and no output is missing or repeated.",
		readOnly: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args getArgs) (*Run, *Problem) {
		wait := min(time.Duration(min(args.Wait, 3600)*float64(time.Second)), c.waitBudget())
		until := time.Now().Add(wait)
		e, err := c.target.Client.Execution(ctx, args.ID, args.Offset, min(wait, contract.MaxWait), firstBytes)
		if err != nil {
			return nil, problemAbout(hint.Execution, err)
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
		followed := r.follow(ctx, e, time.Until(until), o)
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
	Limit int64 `json:"limit" default:"20" min:"1" max:"1000" doc:"Maximum number of runs."`
	target
}

// Executions is the answer of list_executions.
type Executions struct {
	Executions []Listed `json:"executions" doc:"Newest first."`
	Truncated  bool     `json:"truncated" doc:"Not all of them fit into the answer."`
}

// Listed is one line of list_executions.
type Listed struct {
	ExecutionID      string    `json:"execution_id"`
	RequestID        string    `json:"request_id"`
	Status           string    `json:"status"`
	CreatedAt        time.Time `json:"created_at"`
	ExecutionTimeSec *float64  `json:"execution_time_sec"`
	CodePreview      string    `json:"code_preview"`
}

func listExecutions() tool {
	return define(spec{
		name: "list_executions", title: "List runs",
		description: "List the newest runs on the VM with status, time and the first line of their code. Use it to find an execution_id again, to see what runs or waits now, or to check whether a run whose answer was lost was accepted.",
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
	Reason      string `json:"reason" doc:"The reason for the status, if there is one."`
}

func (c *call) standing(e contract.Execution, err error) (*Standing, *Problem) {
	if err != nil {
		return nil, problemAbout(hint.Execution, err)
	}
	c.warnOfEnd(e.SessionMinutesLeft)
	return &Standing{ExecutionID: e.ExecutionID, Status: string(e.Status), Reason: e.Reason}, nil
}

func (s *Standing) text(b *strings.Builder) {
	fmt.Fprintf(b, "Run %s: %s\n%s", s.ExecutionID, s.Status, ensureLine(s.Reason))
	if s.Status == string(contract.StatusRunning) {
		b.WriteString("Call get_execution with wait_seconds to read on.\n")
	}
}

type interruptArgs struct {
	ID string `json:"execution_id" min:"1" max:"200" doc:"From the run's answer or list_executions."`
	target
}

func interruptExecution() tool {
	return define(spec{
		name: "interrupt_execution", title: "Interrupt a run",
		description: "Stop a run on the VM, as the stop button of a notebook does: it gets a KeyboardInterrupt, and variables stay. A queued run is cancelled. Use it for an endless loop or a run that is no longer needed. If the run does not yield, call restart_kernel.",
		destructive: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args interruptArgs) (*Standing, *Problem) {
		return c.standing(c.target.Client.Interrupt(ctx, args.ID))
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
		description: "Give a run whose status is waiting_for_input the line its input() asks for. Then call get_execution with wait_seconds to read on. A password (getpass) is refused: the user types it with `colab-relay input ID` in a terminal.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, args inputArgs) (*Standing, *Problem) {
		return c.standing(c.target.Client.Input(ctx, args.ID, contract.Input{Text: args.Text}))
	})
}
