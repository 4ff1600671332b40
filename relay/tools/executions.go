package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/runlist"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

type getArgs struct {
	ID     string  `json:"execution_id" min:"1" max:"200" doc:"Or its first characters."`
	Offset int64   `json:"offset" default:"0" min:"0" doc:"First event to read."`
	Wait   float64 `json:"wait_seconds" default:"0" min:"0" doc:"How long to wait for the end; most hosts allow 45, Claude Code 600."`
	target
}

func getExecution() tool {
	return define(spec{
		name: "get_execution", title: "Read a run's output",
		command:     Command{Name: "logs", Own: true},
		summary:     "returns a run's state and its output from an offset; can wait for more",
		description: "Use it when a run is running, queued or waiting for input, and to read output that an answer omitted. With wait_seconds it waits for the end and shows head and tail of the output from offset on. Without, it returns one page of the whole output and names the call for the next.",
		readOnly:    true, idempotent: true, openWorld: true, upfront: true, patient: true,
	}, func(ctx context.Context, c *call, args getArgs) (*Installed, *Problem) {
		wait := min(time.Duration(min(args.Wait, 86_400)*float64(time.Second)), c.budget(c.most))
		until := time.Now().Add(wait)
		e, problem := c.onRun(ctx, args.ID, func(id string) (contract.Execution, error) {
			args.ID = id
			return c.target.Client.Execution(client.WithBehindInput(ctx), id, args.Offset, min(wait, contract.MaxWait), firstBytes)
		})
		if problem != nil {
			return nil, problem
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
		var installing installWatch // a page shows everything
		if !page {
			r.watch = installing.see
		}
		followed := r.follow(ctx, e, time.Until(until), o)
		c.checkKernelOf(ctx, r.exec)
		run, problem := r.finish(ctx, followed)
		if name := c.saves.get(c.target, args.ID); name != "" && args.Offset == 0 && r.exec.Status.Finished() {
			if c.saveLater(run, problem, name); run.CheckpointSaved != nil && *run.CheckpointSaved {
				c.saves.saved(c.target, args.ID)
			}
		}
		return installing.answer(run, problem)
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
	Limit    int64 `json:"limit" default:"20" min:"1" max:"1000" doc:"Most runs to list."`
	Internal bool  `json:"include_internal" default:"false" doc:"Also finished runs of the relay's own."`
	target
}

// Executions is the answer of list_executions.
type Executions struct {
	Executions []Listed `json:"executions,omitzero"` // newest first
	Hidden     int      `json:"hidden,omitempty"`    // finished runs of the relay's own code and earlier batches that are not listed
	Truncated  bool     `json:"truncated"`           // there may be older runs

	limit int64
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
		command:     Command{Name: "ps", Own: true},
		summary:     "lists past and present runs, newest first",
		description: "Use it to find an execution_id, to see what runs or waits, or whether a run whose answer was lost was accepted.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args listArgs) (*Executions, *Problem) {
		list, more, err := c.listRuns(ctx, args)
		if err != nil {
			return nil, problemOf(err)
		}
		shown := args.shown(list)
		got := &Executions{Hidden: len(list) - len(shown), Truncated: more || len(shown) > int(args.Limit), limit: args.Limit}
		all := make([]Listed, 0, len(shown))
		for _, e := range shown[:min(len(shown), int(args.Limit))] {
			all = append(all, Listed{e.ExecutionID, e.RequestID, string(e.Status), e.CreatedAt, seconds(e), listTitle(e)})
		}
		var cut bool
		got.Executions, cut = fitList(all)
		got.Truncated = got.Truncated || cut
		return got, nil
	})
}

// listRuns returns the newest runs of the VM: as many as contain args.Limit that are shown, if
// there are so many. Each request asks for four times as many as the one before. more reports
// whether the VM may have older ones.
func (c *call) listRuns(ctx context.Context, args listArgs) (runs []contract.Execution, more bool, err error) {
	for ask := int(args.Limit); ; ask = min(4*ask, contract.MaxListExecutions) {
		list, err := c.target.Client.List(ctx, ask)
		if err != nil {
			return nil, false, err
		}
		runs, more = list.Executions, len(list.Executions) >= ask
		if len(runs) > 0 { // all have the same value
			c.warnOfEnd(runs[0].SessionMinutesLeft)
		}
		if len(args.shown(runs)) >= int(args.Limit) || !more || ask == contract.MaxListExecutions {
			return runs, more, nil
		}
	}
}

// shown returns the runs that are listed, of runs with the newest first: none of the relay's own,
// and no round of a chunked run that succeeded before another one. Whatever has not ended is listed:
// it has the kernel, or waits for it.
func (a listArgs) shown(runs []contract.Execution) (shown []contract.Execution) {
	seen := map[string]bool{}
	for _, e := range runs {
		chunked := batchOf().FindString(e.CodePreview)
		earlier := seen[chunked] && e.Status == contract.StatusSucceeded
		if a.Internal || !e.Status.Finished() || !runlist.IsMachinery(e.CodePreview) && !earlier {
			shown = append(shown, e)
			seen[chunked] = chunked != ""
		}
	}
	return shown
}

// batchOf finds which chunked run a step or round is of.
var batchOf = lazy.Regexp(`^# chunked run "[^\n]*": `)

// batchTitle is the first line of a step or round of a chunked run.
var batchTitle = lazy.Regexp(`^# chunked run (".*"): (round|setup of \d+ iterations)$`)

// runTitle is the first line of a run's code; of code that a tool wrapped, what the tool was
// called for.
func runTitle(preview string) string {
	preview = plain.Line(preview)
	if runlist.IsMachinery(preview) {
		return "(the relay's own) " + strings.TrimPrefix(preview, "# colab-relay: ")
	}
	if strings.HasPrefix(preview, "# install_packages ") {
		return strings.TrimPrefix(preview, "# ")
	}
	return batchTitle().ReplaceAllString(preview, "run_chunked_operation $1, $2")
}

// listTitle is a run's title behind the name of its source, such as a notebook and its cell.
func listTitle(e contract.Execution) string {
	title := runTitle(e.CodePreview)
	if e.SourceName == "" {
		return title
	}
	return "[" + plain.Clip(plain.Line(e.SourceName), contract.MaxSourceName) + "] " + title
}

func (l *Executions) text(b *words) {
	if len(l.Executions) == 0 {
		b.WriteString("No runs yet.\n")
	} else {
		fmt.Fprintf(b, "%s, newest first\n", plain.Count(len(l.Executions), "run"))
	}
	var rows strings.Builder
	for _, e := range l.Executions {
		took := ""
		if e.ExecutionTimeSec != nil {
			took = " " + tookText(*e.ExecutionTimeSec)
		}
		fmt.Fprintf(&rows, "%s  %s%s  %s  %s  %s\n", plain.Clip(e.ExecutionID, maxShownID), e.Status, took, e.CreatedAt.UTC().Format(time.RFC3339), plain.Clip(e.RequestID, maxShownID), plain.Line(e.CodePreview))
	}
	if l.Truncated && l.limit < contract.MaxListExecutions {
		fmt.Fprintf(b, "There may be older runs: list_executions with limit=%d lists more.\n", min(4*l.limit, contract.MaxListExecutions))
	}
	if l.Hidden > 0 {
		fmt.Fprintf(b, "Not listed: %s of the relay's own code or earlier rounds of chunked runs; include_internal=true lists them.\n", plain.Count(l.Hidden, "finished run"))
	}
	b.quote("execution_id, status, time of submission, request_id, first line of code", rows.String())
}

// maxShownID bounds an id in a list. One that this relay or an executor makes is shorter.
const maxShownID = 128

// tookText is how long a run has taken.
func tookText(seconds float64) string {
	if seconds >= 100 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// wholeID is how long the id of an execution is, a UUID.
const wholeID = 36

// onRun does something with the run id. If the VM has no such run, the id may be the beginning
// of one, as on the command line.
func (c *call) onRun(ctx context.Context, id string, act func(id string) (contract.Execution, error)) (contract.Execution, *Problem) {
	e, err := act(id)
	if err == nil {
		return e, nil
	}
	missing := problemOn(hint.Execution, id, err)
	if refusalCode(err) != contract.CodeNotFound || len(id) >= wholeID {
		return e, missing
	}
	list, err := c.target.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		if refusalCode(err) == contract.CodeNotFound {
			return e, missing
		}
		return e, problemOf(err)
	}
	switch found := runlist.Find(list.Executions, id); len(found) {
	case 0:
		return e, missing
	case 1:
		id = found[0].ExecutionID
	default:
		return e, ambiguous(id, found)
	}
	if e, err = act(id); err != nil {
		return e, problemOn(hint.Execution, id, err)
	}
	return e, nil
}

// ambiguous says that an id is the beginning of several runs'.
func ambiguous(id string, found []contract.Execution) *Problem {
	var b strings.Builder
	fmt.Fprintf(&b, "several runs begin with that id, %q:", clipName(id))
	for i, e := range found {
		if i == runlist.MaxAmbiguous {
			fmt.Fprintf(&b, "\n  and %d more", len(found)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s  %s  %s", plain.Clip(e.ExecutionID, maxShownID), string(e.Status), plain.Quote(listTitle(e)))
	}
	return &Problem{Code: codeBadRequest, Message: b.String(), Hint: "Call again with more characters of the id."}
}

// Standing is the answer of tools that act on an execution: its status afterwards.
type Standing struct {
	ExecutionID string `json:"execution_id"`
	Status      string `json:"status"`
	Reason      string `json:"reason,omitempty"`       // the reason for the status, if there is one
	NextCommand string `json:"next_command,omitempty"` // what to call next, if the run has not ended
}

// standing does something with the run id and answers with the run as it is then.
func (c *call) standing(ctx context.Context, id string, act func(id string) (contract.Execution, error)) (*Standing, *Problem) {
	e, problem := c.onRun(ctx, id, func(whole string) (contract.Execution, error) {
		id = whole
		return act(whole)
	})
	if problem != nil {
		return nil, problem
	}
	c.warnOfEnd(e.SessionMinutesLeft)
	s := &Standing{ExecutionID: e.ExecutionID, Status: string(e.Status), Reason: brief(plain.Line(e.Reason))}
	if !e.Status.Finished() {
		s.NextCommand = command("get_execution", "execution_id", id, "wait_seconds", c.waitSeconds(), "runtime_name", c.asked)
	}
	return s, nil
}

func (s *Standing) text(b *words) {
	fmt.Fprintf(b, "Run %s: %s\n", plain.Clip(s.ExecutionID, maxShownID), s.Status)
	if s.Reason != "" {
		fmt.Fprintf(b, "The VM says: %s\n", plain.Quote(s.Reason))
	}
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", s.NextCommand)
	}
}

type interruptArgs struct {
	ID string `json:"execution_id" min:"1" max:"200" doc:"Or its first characters."`
	target
}

func interruptExecution() tool {
	return define(spec{
		name: "interrupt_execution", title: "Interrupt a run",
		command:     Command{Name: "interrupt", Own: true},
		summary:     "interrupts a run or removes it from the queue; variables are kept",
		description: "Use it to stop a run that hangs or is no longer needed. Variables are kept; a queued run is cancelled. If it goes on, call again, then restart_kernel.",
		destructive: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args interruptArgs) (*Standing, *Problem) {
		return c.standing(ctx, args.ID, func(id string) (contract.Execution, error) { return c.target.Client.Interrupt(ctx, id) })
	})
}

type inputArgs struct {
	ID   string `json:"execution_id" min:"1" max:"200" doc:"Of the run that waits, or its first characters."`
	Text string `json:"text" max:"100000" doc:"What to type, without the line break."`
	target
}

func provideInput() tool {
	return define(spec{
		name: "provide_input", title: "Answer input()",
		command:     Command{Name: "input", Own: true},
		summary:     "answers a run that waits in `input()`",
		description: "Use it when a run's status is waiting_for_input, to type the line that it asks for. Then call get_execution with wait_seconds. A password is refused: the user types it with `colab-relay input ID`.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, args inputArgs) (*Standing, *Problem) {
		return c.standing(ctx, args.ID, func(id string) (contract.Execution, error) {
			return c.target.Client.Input(ctx, id, contract.Input{Text: args.Text, Offset: c.prompts.of(id)})
		})
	})
}
