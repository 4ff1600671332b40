package op

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// quickTimeout is the deadline of run_code_quick. The VM enforces it.
const quickTimeout = 120 * time.Second

type quickArgs struct {
	Code string `json:"code" min:"1" doc:"Python; lines with ! or % work as in notebooks."`
	target
}

func runQuick() tool {
	return define(spec{
		title:       "Run Python (up to 2 minutes)",
		summary:     "runs code for up to 120 s",
		description: "Runs Python on the remote VM for up to two minutes: look at data, compute, plot. It answers with stdout, stderr, the last expression's value, pictures and errors. Variables persist between calls. After 120 s the code is interrupted; variables are kept.",
	}, func(ctx context.Context, c *call, args quickArgs) (*Run, *Problem) {
		return c.submit(ctx, args.Code, quickTimeout)
	})
}

type longArgs struct {
	Code       string  `json:"code" min:"1" doc:"Python; lines with ! or % work as in notebooks."`
	Checkpoint string  `json:"checkpoint_name" default:"" max:"200" doc:"Also save the answer on this computer under this name."`
	Timeout    float64 `json:"timeout_seconds" default:"600" min:"1" max:"86400" doc:"The code is interrupted then; variables are kept."`
	target
}

func runLong() tool {
	return define(spec{
		title:       "Run Python (long)",
		summary:     "runs code for up to 24 h and answers within `RELAY_HOLD` with the output so far; with `checkpoint_name`, keeps the answer on the laptop",
		description: "Runs Python on the remote VM for minutes to hours: training, downloads, large computations. It answers early with status running and the output so far; the run continues on the VM whatever happens to this call, and get_execution with wait_seconds=45 reads on. One run executes at a time; others wait.",
	}, func(ctx context.Context, c *call, args longArgs) (*Run, *Problem) {
		timeout := time.Duration(args.Timeout * float64(time.Second))
		if args.Checkpoint == "" {
			return c.submit(ctx, args.Code, timeout)
		}
		unlock, err := checkpoint.Lock(c.cfg.CheckpointDir, args.Checkpoint)
		switch {
		case err == nil:
			defer unlock()
		case errors.Is(err, checkpoint.ErrBusy):
			return nil, problemOf(err) // before anything runs
		}
		run, problem := c.submit(ctx, args.Code, timeout)
		if run != nil {
			if !contract.Status(run.Status).Finished() {
				c.saves.put(c.saveKey(run.ExecutionID), args.Checkpoint)
			}
			c.saveLocked(run, problem, args.Checkpoint)
		}
		return run, problem
	})
}

// submit runs code and waits for its end as long as this call may.
func (c *call) submit(ctx context.Context, code string, timeout time.Duration) (*Run, *Problem) {
	return c.submitWatched(ctx, contract.Submit{Code: code, TimeoutSeconds: timeout.Seconds()}, nil)
}

// submitWatched is submit of a run that watch, unless it is nil, gets every event of that is
// read. It sets how the run is identified and waited for.
func (c *call) submitWatched(ctx context.Context, s contract.Submit, watch func(contract.Event)) (*Run, *Problem) {
	if len(s.Code) > maxCodeBytes {
		return nil, &Problem{Code: string(contract.CodeTooLarge), Message: fmt.Sprintf("the code is over %d MiB", maxCodeBytes>>20), Hint: hint.ForRefusal(&contract.Error{Code: contract.CodeTooLarge}).Model}
	}
	same := unansweredSubmit{c.target.Name, sha256.Sum256([]byte(s.Code)), inSeconds(s.TimeoutSeconds)}
	earlier := c.unsure.take(same)
	var left givenUpCall // whose run this call waits for
	if earlier.requestID == "" {
		g, underWay, err := c.leftRun(ctx, s.Code)
		if err != nil {
			return nil, unsubmitted(err, false, "")
		}
		if earlier.requestID, earlier.instance = g.RequestID, g.Instance; underWay {
			left = g
		}
	}
	wait := c.waitBudget()
	s.RequestID, s.WaitSeconds, s.BehindInput = cmp.Or(earlier.requestID, rand.Text()), wait.Seconds(), true
	if c.progress != nil { // it shows lines of output before the end
		s.OutputAfterSeconds = min(wait, quietFor).Seconds()
	}
	until := time.Now().Add(wait)
	sentTo := c.target.Client.InstanceID()
	e, err := c.submitFor(ctx, earlier, s)
	sentTo = cmp.Or(earlier.instance, sentTo, c.target.Client.InstanceID())
	c.left = &givenUpCall{Runtime: c.target.Name, Code: codeSum(s.Code), RequestID: s.RequestID, Instance: sentTo}
	if earlier.requestID != "" && refusalCode(err) == contract.CodeNewInstance {
		c.markGivenUp(left.RequestID, true)
		return nil, &Problem{
			Code: string(contract.CodeNewInstance), Message: "an earlier call may have run this code on a VM that has been replaced since; it was not run on the new one",
			Hint: "Find out whether the code did its work. Run the setup code again, then call again to run this code on the new VM.",
		}
	}
	if err != nil {
		mayRun := (earlier.requestID != "" || client.MayRun(err)) && refusalCode(err) != contract.CodeNewInstance
		if !mayRun {
			c.left = nil
		}
		// A call that the host cancelled is remembered as given up.
		if mayRun && left.RequestID == "" && (earlier.requestID != "" || !errors.Is(err, context.Canceled)) {
			c.unsure.add(same, submitted{s.RequestID, sentTo})
		}
		return nil, unsubmitted(err, mayRun, s.RequestID)
	}
	switch {
	case left.RequestID != "":
		c.reminders = append(slices.DeleteFunc(c.reminders, func(r reminder) bool { return r.requestID == left.RequestID }), reminder{requestID: left.RequestID})
		c.warn("An earlier call with this code was given up after %.0f s. This is its run: nothing was submitted. To run the code once more on purpose, change it, for example by a comment.", left.After.Seconds())
	case earlier.requestID != "":
		c.warn("An earlier call with the same code got no answer. This is its run: the code was not run a second time. To run it once more, call again.")
	}
	r := c.read(e.ExecutionID, render.Options{New: earlier.requestID == ""})
	r.watch = watch
	defer r.col.Close()
	followed := r.follow(ctx, e, time.Until(until), client.FollowOptions{MaxBytes: contract.MaxReadBytes})
	c.checkKernel(r.exec.KernelID)
	return r.finish(ctx, followed)
}

// unansweredSubmit is what a call sent. Two calls of the same code are two runs.
type unansweredSubmit struct {
	runtime string
	code    [sha256.Size]byte
	timeout time.Duration
}

// submitted is how it is found again.
type submitted struct{ requestID, instance string }

// submitFor submits code, or asks the executor to which an earlier call sent it for that run.
func (c *call) submitFor(ctx context.Context, earlier submitted, s contract.Submit) (contract.Execution, error) {
	if earlier.instance != "" {
		return c.target.Client.SubmitTo(ctx, earlier.instance, s)
	}
	return c.target.Client.Submit(ctx, s)
}

// unsubmitted is the problem of a submit that ended with err. It says whether the code may run.
func unsubmitted(err error, mayRun bool, requestID string) *Problem {
	p := problemOf(err)
	failed, unanswered := errors.AsType[*client.Error](err)
	next := p.Hint
	if unanswered {
		next = failed.Hint
	}
	switch {
	case mayRun:
		return p.withHint(fmt.Sprintf("The code may have been submitted. If so, list_executions shows the run under request_id %s: check that before you run the code again. While this relay runs, the same call asks for that run, and does not run the code twice. For the connection: %s", requestID, next))
	case unanswered:
		return p.withHint("The code was not run. " + next)
	}
	return p
}

// quietFor is how long the submit of a call with progress waits before output alone
// answers it: long enough that a quick run costs a single request.
const quietFor = 2 * time.Second

// maxCodeBytes leaves room for JSON's escapes within contract.MaxBodyBytes.
const maxCodeBytes = 4 << 20

// waitSeconds is the wait_seconds of a call that this answer recommends.
func (c *call) waitSeconds() int {
	if c.clientLimit > 0 {
		return int((min(c.cfg.Hold, c.clientLimit) - beforeLimit).Seconds())
	}
	return int(max(c.cfg.Hold, c.most).Seconds())
}

// waitBudget is how long a call may wait for a run: its time less what the answer itself
// needs (fetching pictures, writing files).
func (c *call) waitBudget() time.Duration { return c.budget(c.hold) }

// budget is what a call that may last so long has left to wait.
func (c *call) budget(most time.Duration) time.Duration {
	rest := min(most/10, 2*time.Second)
	if most == c.clientLimit {
		rest = beforeLimit
	}
	return most - rest - time.Since(c.started)
}

func (c *call) saveKey(id string) string {
	return c.target.Name + "/" + c.target.Client.InstanceID() + "/" + id
}

// savedAnswer is the data of a checkpoint of run_code_long.
type savedAnswer struct {
	Outcome
	*Run
}

// saveLater saves the answer of a call that started without the checkpoint's lock.
func (c *call) saveLater(run *Run, problem *Problem, name string) {
	unlock, err := checkpoint.Lock(c.cfg.CheckpointDir, name)
	if err != nil {
		run.CheckpointSaved = new(bool)
		run.Notes = append(run.Notes, fmt.Sprintf("the answer was not saved: %v; call again later to save it", err))
		return
	}
	defer unlock()
	c.saveLocked(run, problem, name)
}

// saveLocked saves an answer under a checkpoint name and records that in the answer. The
// caller holds the checkpoint's lock.
func (c *call) saveLocked(run *Run, problem *Problem, name string) {
	if entry, err := checkpoint.Load(c.cfg.CheckpointDir, name, nil); err == nil && entry.Kind() == chunked.Kind {
		run.CheckpointSaved = new(bool)
		run.Notes = append(run.Notes, fmt.Sprintf("the answer was not saved: %q is the name of a chunked run; choose another checkpoint_name", name))
		return
	}
	data := savedAnswer{Outcome{Success: problem == nil, Runtime: c.target.Name, Error: problem}, run}
	path, err := checkpoint.Save(c.cfg.CheckpointDir, name, data)
	saved := err == nil
	run.CheckpointSaved, run.CheckpointPath = &saved, path
	if err != nil {
		run.Notes = append(run.Notes, "the checkpoint could not be saved: "+err.Error())
	}
}
