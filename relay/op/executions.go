package op

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

type getArgs struct {
	ID     string  `json:"execution_id" min:"1" max:"200" doc:"Or its first characters."`
	Offset int64   `json:"offset" default:"0" min:"0" doc:"First event to read."`
	Wait   float64 `json:"wait_seconds" default:"0" min:"0" doc:"How long to wait for the end; most hosts allow 45, Claude Code 600."`
	target
}

func getExecution() Operation {
	return operation(spec{
		title:       "Read a run's output",
		description: "Use it when a run is running, queued or waiting for input, and to read output that an answer omitted. With wait_seconds it waits for the end and shows head and tail of the output from offset on. Without, it returns one page of the whole output and names the call for the next.",
	}, func(ctx context.Context, c *call, args getArgs) (*Installed, error) {
		wait := min(time.Duration(min(args.Wait, 86_400)*float64(time.Second)), c.budget(c.most))
		until := time.Now().Add(wait)
		e, err := c.onRun(ctx, args.ID, func(id string) (contract.Execution, error) {
			args.ID = id
			return c.target.Client.Execution(client.WithBehindInput(ctx), id, args.Offset, min(wait, contract.MaxWait), firstBytes)
		})
		if err != nil {
			return nil, err
		}
		r := c.read(args.ID, render.Options{From: args.Offset, Page: args.Wait == 0})
		defer r.col.Close()
		o := client.FollowOptions{MaxBytes: contract.MaxReadBytes}
		var installing installWatch
		if r.page { // it shows everything
			o = client.FollowOptions{Available: true, FirstBytes: firstBytes, MaxBytes: pageBytes}
		} else {
			r.watch = installing.see
		}
		followed := r.follow(ctx, e, time.Until(until), o)
		c.checkKernelOf(ctx, r.exec)
		run, problem := r.finish(ctx, followed)
		if name, pending := c.saves.get(c.saveKey(args.ID)); pending && args.Offset == 0 && r.exec.Status.Finished() {
			if c.saveLater(run, problem, name); run.CheckpointSaved != nil && *run.CheckpointSaved {
				c.saves.take(c.saveKey(args.ID)) // no later answer changes the checkpoint
			}
		}
		got, problem := installing.answer(run, problem)
		return got, problem.orNil()
	})
}

// A page shows some KiB, which the first answer usually contains. Folded progress bars may
// need more; each further answer may be twice as long.
const (
	firstBytes = 16 << 10
	pageBytes  = 128 << 10
)

type listArgs struct {
	Limit    int64  `json:"limit" default:"-1" max:"1000" doc:"Most runs to list; 20 by default." flag:"number,n" usage:"list at most 'NUMBER' runs (default 20, or all with --all)"`
	Internal bool   `json:"include_internal" default:"false" doc:"Also finished runs of the relay's own." flag:"all,a" usage:"list all runs, also those that the relay made for itself"`
	Of       string `json:"-" default:"" flag:"runtime" usage:"list only the runs of the runtime 'NAME'" complete:"runtimes"`
	target
}

// limit is how many runs are listed.
func (a *listArgs) limit(c *call) int {
	switch {
	case a.Limit > 0:
		return int(a.Limit)
	case a.Internal && c.person != nil:
		return math.MaxInt
	}
	return 20
}

// Executions is the answer of list_executions.
type Executions struct {
	Executions []runlist.Entry `json:"executions"`       // newest first
	Hidden     int             `json:"hidden,omitempty"` // finished runs of the relay's own code and earlier rounds that are not listed
	Truncated  bool            `json:"truncated"`        // there may be older runs

	limit int
	cut   int // runs that did not fit into the answer
}

func listExecutions() Operation {
	t := operation(spec{
		title: "List runs",
		Command: Command{Group: "run",
			Short: "List runs, present and past",
			Long: "List the runs of all runtimes, newest first: those in this computer's history, and those on the VMs. It also works after a VM is gone. Ids are shortened; --json prints them whole.\n" +
				"A question mark after a status means that it may have changed since: the VM does not answer, or is gone.\n" +
				"Of a chunked run, the last round and those that failed are listed. All its rounds, and other code that the relay runs for itself, are listed only with --all.",
			Examples: "  colab-relay ps\n  colab-relay ps -n 5 --runtime work\n  colab-relay ps --all --json"},
		description: "Use it to find an execution_id, to see what runs or waits, or whether a run whose answer was lost was accepted.",
	}, func(ctx context.Context, c *call, args listArgs) (*Executions, error) {
		limit := args.limit(c)
		all, more, err := c.listRuns(ctx, args, limit)
		if err != nil {
			return nil, err
		}
		shown := args.shown(all)
		newest := append([]runlist.Entry{}, shown[:min(len(shown), limit)]...)
		kept := fit(c, newest)
		return &Executions{kept, len(all) - len(shown), more || len(shown) > len(kept), limit, len(newest) - len(kept)}, nil
	})
	t.Local = true // for a person, who sees the history, too
	return t
}

func (a *listArgs) shown(all []runlist.Entry) []runlist.Entry {
	if a.Internal {
		return all
	}
	return runlist.WithoutInternal(all)
}

// listRuns returns a person's runs, or the newest runs of the VM: as many as contain limit that are
// shown, if there are so many. Each request asks for four times as many as the one before. more
// reports whether the VM may have older ones.
func (c *call) listRuns(ctx context.Context, args listArgs, limit int) (all []runlist.Entry, more bool, err error) {
	if c.person != nil {
		all, err = c.person.Runs(ctx, args.Of)
		return all, false, err
	}
	for ask := limit; ; ask = min(4*ask, contract.MaxListExecutions) {
		list, err := c.target.Client.List(ctx, ask)
		if err != nil {
			return nil, false, err
		}
		if len(list.Executions) > 0 { // all have the same value
			c.warnOfEnd(list.Executions[0].SessionMinutesLeft)
		}
		more = len(list.Executions) >= ask
		all = runlist.Merge(nil, []runlist.VM{{Runtime: c.target.Name, InstanceID: c.target.Client.InstanceID(), Executions: list.Executions}}, time.Now())
		if len(args.shown(all)) >= limit || !more || ask == contract.MaxListExecutions {
			return all, more, nil
		}
	}
}

// batchTitle is the first line of a step or round of a chunked run.
var batchTitle = lazy.Regexp(`^# chunked run (".*"): (round|setup of \d+ iterations)$`)

// titleOf is the first line of a run's code; of code that a tool wrapped, what the tool was called
// for. The name of its source, such as a notebook and its cell, comes first.
func titleOf(e *runlist.Entry) string {
	title := plain.Line(e.CodePreview)
	switch {
	case runlist.IsMachinery(title):
		title = "(the relay's own) " + strings.TrimPrefix(title, "# colab-relay: ")
	case strings.HasPrefix(title, "# install_packages "):
		title = strings.TrimPrefix(title, "# ")
	default:
		title = batchTitle().ReplaceAllString(title, "run_chunked_operation $1, $2")
	}
	if e.Name != "" {
		return "[" + plain.Clip(e.Name, contract.MaxSourceName) + "] " + title
	}
	return title
}

func (l *Executions) text(w *words) {
	if len(l.Executions) == 0 {
		w.note("no runs yet%s", w.either("", ": run code with `colab-relay run FILE`, or let an agent use the tools"))
	}
	table := terminal.NewTable(terminal.Column{Title: w.either("EXECUTION_ID", "ID")}, terminal.Column{Title: w.either("REQUEST_ID", "RUNTIME")}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: w.either("SUBMITTED", "WHEN")}, terminal.Column{Title: "TOOK", Right: true}, terminal.Column{Title: "CODE"})
	unsure := false
	for _, e := range l.Executions {
		status, took := e.Status, ""
		if e.Unsure() {
			status, unsure = status+"?", true
		}
		if e.ExecutionTimeSec != nil {
			took = tookText(*e.ExecutionTimeSec)
		}
		table.Add(w.either(plain.Clip(e.ExecutionID, maxShownID), e.ExecutionID[:min(len(e.ExecutionID), shortID)]), w.either(plain.Clip(e.RequestID, maxShownID), e.Runtime), status, w.when(e.CreatedAt), took, titleOf(&e))
	}
	if len(l.Executions) > 0 {
		w.table("runs, newest first", table)
	}
	if unsure {
		w.note("a status marked ? is the last one that this computer saw; the run's VM does not answer, is gone, or no longer has the run")
	}
	if l.cut > 0 {
		w.note("%s did not fit into this answer", plain.Count(l.cut, "older run"))
	} else if l.Truncated && l.limit < contract.MaxListExecutions {
		more := min(4*l.limit, contract.MaxListExecutions)
		w.note("there may be older runs: %s lists more", w.either(fmt.Sprintf("list_executions with limit=%d", more), fmt.Sprintf("`colab-relay ps -n %d`", more)))
	}
	if l.Hidden > 0 {
		w.note("not listed: %s of the relay's own code or earlier rounds of chunked runs; %s lists them", plain.Count(l.Hidden, "finished run"), w.either("include_internal=true", "`colab-relay ps --all`"))
	}
}

const (
	maxShownID = 128 // characters of an id in a list; one that this relay or an executor makes is shorter
	shortID    = 8   // are enough for a person, unless two runs begin alike: a command then names both
)

// tookText is how long a run has taken.
func tookText(seconds float64) string {
	if seconds >= 100 {
		return progress.Duration(time.Duration(min(seconds, math.MaxInt32) * float64(time.Second)))
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// onRun does something with the run id; of a person who gives none, with the run that has the kernel.
// If the VM has no such run, the id may be the beginning of one.
func (c *call) onRun(ctx context.Context, id string, act func(id string) (contract.Execution, error)) (contract.Execution, error) {
	var e contract.Execution
	var err error
	if id != "" {
		if e, err = act(id); refusalCode(err) != contract.CodeNotFound {
			return e, hint.With(hint.Execution, id, err)
		}
		if len(id) >= runlist.WholeID {
			return e, &runlist.NoSuchRunError{ID: id}
		}
	}
	if e, err = runlist.Listed(ctx, c.target.Client, id); err != nil {
		return e, err
	}
	e, err = act(e.ExecutionID)
	return e, hint.With(hint.Execution, id, err)
}

// Standing is the answer of operations on a run: its status afterwards.
type Standing struct {
	ExecutionID string `json:"execution_id"`
	Status      string `json:"status"`
	Reason      string `json:"reason,omitempty"`       // the reason for the status, if there is one
	NextCommand string `json:"next_command,omitempty"` // what to call next, if the run has not ended
}

// standing does something with the run id and answers with the run as it is then.
func (c *call) standing(ctx context.Context, id string, act func(id string) (contract.Execution, error)) (*Standing, error) {
	e, err := c.onRun(ctx, id, act)
	if err != nil {
		return nil, err
	}
	c.warnOfEnd(e.SessionMinutesLeft)
	s := StandingOf(e)
	if !e.Status.Finished() {
		s.NextCommand = c.either(command("get_execution", "execution_id", e.ExecutionID, "wait_seconds", c.waitSeconds(), "runtime_name", c.asked), "colab-relay logs -f "+plain.Line(e.ExecutionID))
	}
	return s, nil
}

// StandingOf returns how a run is.
func StandingOf(e contract.Execution) *Standing {
	return &Standing{ExecutionID: e.ExecutionID, Status: string(e.Status), Reason: brief(plain.Line(e.Reason))}
}

func (s *Standing) text(b *words) {
	fmt.Fprintf(b, "Run %s: %s\n", plain.Clip(s.ExecutionID, maxShownID), inline(s.Status))
	if s.Reason != "" {
		fmt.Fprintf(b, "The VM says: %s\n", plain.Quote(s.Reason))
	}
	if s.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", s.NextCommand)
	}
}

type interruptArgs struct {
	ID string `json:"execution_id" arg:"[ID]" min:"1" max:"200" doc:"Or its first characters." complete:"runs"`
	target
}

func interruptExecution() Operation {
	return operation(spec{
		title: "Interrupt a run",
		Command: Command{Group: "run",
			Short: "Stop a run; variables are kept",
			Long: "Stop a run on the VM, as the stop button of a notebook does: the code gets a KeyboardInterrupt, and the kernel keeps its variables. A queued run is cancelled. The command waits up to 10 s for the run to end; if it does not, the exit code is 75.\n" +
				"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
			Examples: "  colab-relay interrupt\n  colab-relay interrupt 3f2a --json"},
		description: "Use it to stop a run that hangs or is no longer needed. Variables are kept; a queued run is cancelled. If it goes on, call again, then restart_kernel.",
	}, func(ctx context.Context, c *call, args interruptArgs) (*Standing, error) {
		s, err := c.standing(ctx, args.ID, func(id string) (contract.Execution, error) {
			e, err := c.target.Client.Interrupt(ctx, id)
			if refusalCode(err) == contract.CodeConflict {
				c.warn("Nothing was interrupted, because the run had already ended.")
				return c.target.Client.Execution(ctx, id, 0, 0, 1)
			}
			return e, err
		})
		if err == nil && c.person != nil && !contract.Status(s.Status).Finished() {
			err = fmt.Errorf("%w: it has not reacted to the interrupt yet; interrupt it again, or run `colab-relay restart`, which ends it and deletes all variables", runlist.ErrStillRunning)
		}
		return s, err
	})
}

type inputArgs struct {
	ID   string `json:"execution_id" arg:"[ID]" min:"1" max:"200" doc:"Of the run that waits, or its first characters." complete:"runs"`
	Text string `json:"text" max:"100000" doc:"What to type, without the line break."`
	target
}

func provideInput() Operation {
	return operation(spec{
		title: "Answer input()",
		Command: Command{Group: "run",
			Short: "Answer a run that waits in input() or getpass()",
			Long: "Show the prompt of a run that waits for input, and send it one line, typed or from a pipe. A password is not shown while you type it, and no agent sees it.\n" +
				"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
			Examples: "  colab-relay input\n  echo yes | colab-relay input 3f2a"},
		description: "Use it when a run's status is waiting_for_input, to type the line that it asks for. Then call get_execution with wait_seconds. A password is refused: the user types it with `colab-relay input ID`.",
	}, func(ctx context.Context, c *call, args inputArgs) (*Standing, error) {
		in := contract.Input{Text: args.Text}
		if c.person != nil {
			e, err := runlist.Listed(ctx, c.target.Client, args.ID)
			if err == nil {
				args.ID = e.ExecutionID
				in, err = c.askPerson(ctx, e)
			}
			if err != nil {
				return nil, err
			}
		}
		return c.standing(ctx, args.ID, func(id string) (contract.Execution, error) {
			if shown, known := c.prompts.get(id); known {
				in.Offset = &shown
			}
			return c.target.Client.Input(ctx, id, in)
		})
	})
}

// recentEvents is how far before the end of a waiting run's output its input request is looked
// for: threads of the code may print after it.
const recentEvents = 1000

// askPerson asks the person what a run asks.
func (c *call) askPerson(ctx context.Context, run contract.Execution) (contract.Input, error) {
	var prompt *contract.Event
	e, err := client.Follow(ctx, c.target.Client, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
		From: max(0, run.NextOffset-recentEvents), Available: true, MaxBytes: contract.MaxReadBytes,
		Visit: func(e contract.Execution) bool {
			for _, ev := range e.Events {
				if ev.Type == contract.EventInputRequest {
					prompt = &ev
				}
			}
			return true
		},
	})
	switch {
	case err != nil:
		return contract.Input{}, err
	case e.Status != contract.StatusWaitingForInput || prompt == nil:
		return contract.Input{}, fmt.Errorf("the run is not waiting for input: its status is %s", inline(string(e.Status)))
	}
	text, err := c.person.Ask(ctx, run.ExecutionID, *prompt)
	return contract.Input{Text: text, Offset: &prompt.Offset, Password: prompt.Password}, err
}

// reading is one execution being read within one call.
type reading struct {
	c    *call
	col  *render.Collector
	exec contract.Execution // as last read, without events
	page bool               // of complete events
	cut  bool               // events remain for the next page

	watch func(contract.Event) // gets every event that is read; may be nil
}

// read starts reading the execution id with the options o, whose Dir it sets.
func (c *call) read(id string, o render.Options) *reading {
	o.Limit, o.Holding = viewLimit(c.cfg.TextLimit), &c.held
	o.Dir = c.outputDir(c.target.Client.InstanceID(), id)
	return &reading{c: c, col: render.New(o), page: o.Page}
}

// viewLimit returns how many characters of an answer's text are for the run's own texts. The
// rest is for status, advice and file names.
func viewLimit(textLimit int) int { return textLimit - min(max(textLimit/6, 400), 4000) }

// outputDir returns the folder for the output of an execution of an instance; empty to save
// nothing. Another instance's execution has another folder, even if it has the same id.
func (c *call) outputDir(instance, id string) string {
	if c.cfg.SaveDir == "" {
		return ""
	}
	return render.Folder(c.cfg.SaveDir, instance, id)
}

// take adds an answer's events and reports whether there is room for more.
func (r *reading) take(e contract.Execution) (more bool) {
	r.exec = e
	r.exec.Events = nil
	for _, ev := range e.Events {
		if !r.col.Room(ev) {
			r.cut = true
			return false
		}
		r.col.Add(ev)
		if r.watch != nil {
			r.watch(ev)
		}
	}
	if r.c.progress != nil {
		r.c.progress.waitFor(waitingFor(r.exec, r.c.target.Name))
		r.c.progress.show(r.col.Newest())
	}
	return !r.col.Full() && client.BehindInput(e) == nil
}

// waitingFor says for what and where a call waits that has no output to show yet.
func waitingFor(e contract.Execution, runtime string) string {
	behind := client.Behind(e)
	switch {
	case behind != nil:
		return fmt.Sprintf("waiting for run %s on runtime %q", behind.ExecutionID, runtime)
	case e.Status == contract.StatusQueued:
		return fmt.Sprintf("waiting for %s on runtime %q", ahead(e.QueuePosition), runtime)
	}
	return fmt.Sprintf("running on runtime %q, no output yet", runtime)
}

// ahead says what a queued run waits for. The first in the queue waits for a kernel that is starting.
func ahead(position int) string {
	if position == 0 {
		return "the kernel to be ready"
	}
	return plain.Count(position, "other run")
}

// follow reads on, beginning with the answer e, until the run's end is read, the page
// is full, the run or the one that it is queued behind asks for input, or wait is over. An
// error means that reading failed; it does not affect the run.
func (r *reading) follow(ctx context.Context, e contract.Execution, wait time.Duration, o client.FollowOptions) error {
	o.From, o.Until, o.Instance = r.col.Next(), time.Now().Add(wait), r.c.target.Client.InstanceID()
	o.Visit = func(e contract.Execution) bool {
		return r.take(e) && (o.Available || !e.Status.Finished() || time.Now().Before(o.Until))
	}
	_, err := client.Follow(client.WithBehindInput(ctx), r.c.target.Client, e, o)
	return err
}

// finish makes the answer from what was read. followed is the error of follow.
func (r *reading) finish(ctx context.Context, followed error) (*Run, *Problem) {
	problem := r.explain(followed)
	r.c.warnOfEnd(r.exec.SessionMinutesLeft)
	view := r.col.View(ctx, r.c.target.Client.Blobs(r.exec.ExecutionID))
	r.c.pictures = view.Pictures
	run := newRun(r.exec, view)
	if run.InputPrompt != nil {
		r.c.prompts.put(run.ExecutionID, view.Prompt.Offset)
	}
	r.warnOfPrompt(run)
	run.page, run.runtime, run.limit = r.page, r.c.target.Name, r.c.cfg.TextLimit
	more := !r.exec.End && (r.exec.Status.Finished() || r.col.Full())
	run.Truncated = view.Truncated || r.cut || more
	run.NextCommand = r.nextCommand(run)
	if problem == nil && !r.exec.Status.OK() {
		problem = runProblem(r.exec)
	}
	switch {
	case view.Error == nil:
	case problem == nil, r.exec.Status == contract.StatusKernelRestarted: // displayed, not raised, as by a failing __repr__
		run.displayed = view.Error.Traceback
	default:
		problem.Traceback = view.Error.Traceback
		if r.exec.Error == nil || r.exec.Error.EName == view.Error.EName { // else a hook raised after the code
			problem.EName, problem.EValue = view.Error.EName, view.Error.EValue
		}
	}
	return run, problem
}

// nextCommand returns the call that continues with a run that has not ended, or reads the
// output that is missing in its answer; empty if nothing remains.
func (r *reading) nextCommand(run *Run) string {
	asking := client.BehindInput(r.exec)
	switch {
	case asking != nil && !asking.Password:
		return command("provide_input", "execution_id", asking.ExecutionID, "text", "…", "runtime_name", r.c.asked)
	case r.exec.Status == contract.StatusWaitingForInput && !run.password:
		return command("provide_input", "execution_id", run.ExecutionID, "text", "…", "runtime_name", r.c.asked)
	case !r.exec.Status.Finished():
		offset := r.col.Next() // what comes now; the run's text says how to read what was omitted
		if r.page {
			offset = run.NextOffset
		}
		return command("get_execution", "execution_id", run.ExecutionID, "offset", offset, "wait_seconds", r.c.waitSeconds(), "runtime_name", r.c.asked)
	case run.Truncated:
		return command("get_execution", "execution_id", run.ExecutionID, "offset", run.NextOffset, "runtime_name", r.c.asked)
	}
	return ""
}

// warnOfPrompt says what only a person or another call can end: the run is queued behind one
// that waits for input, or asks for a password.
func (r *reading) warnOfPrompt(run *Run) {
	if b := client.BehindInput(r.exec); b != nil {
		r.c.warn("This run waits for %s. %s", hint.Asking(b), hint.ForPrompt(b).Model)
	}
	if run.password {
		r.c.warn("The code asks for a password, which provide_input does not accept. %s", hint.ForPassword(run.ExecutionID))
	}
}

// explain translates the error of follow. The executor's refusal is an error; a broken
// connection is only a warning, because the run continues without us.
func (r *reading) explain(followed error) *Problem {
	switch {
	case followed == nil:
		return nil
	case errors.Is(followed, context.Canceled):
		return cancelledProblem
	case errors.Is(followed, context.DeadlineExceeded) && !unreachable(followed):
		return nil // only the call's time is over
	}
	p := problemOf(hint.With(hint.Execution, r.exec.ExecutionID, followed))
	if !unreachable(followed) {
		return p
	}
	r.c.warn("The VM could not be reached while waiting (%s), so status and output are as of the last answer; if only the connection is lost, the run goes on. %s", p.Message, p.Hint)
	return nil
}
