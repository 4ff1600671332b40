package nbrun

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// RunCell runs one cell of the notebook at path, in one execution and without retries: a job of one
// step. The same call finds the cell that an earlier one started with the same source, waits on,
// and answers its end once: it returns the execution as last read, without events, and notes.
// ErrConflict means that it runs with another source, ErrBusy that a run of the whole notebook is
// being continued by another call. Of the Spec, Cells is the cell's handle, and Path, Runtime and
// CellTimeout count.
func RunCell(ctx context.Context, vm VM, dir string, s Spec, o Options) (x contract.Execution, notes []string, err error) {
	r, err := openRecord(dir, s.Path, false)
	if err != nil {
		return x, nil, err
	}
	defer r.Close()
	r.spec, r.values = s, &parameters.Values{}
	a := &advance{Run: r, vm: vm, opt: o}
	if err = a.runCell(ctx); a.isCell() { // something was started
		err = a.close(ctx, err)
	}
	return a.out.Execution, a.notes, err
}

func (a *advance) runCell(ctx context.Context) error {
	if err := a.openWork(); err != nil {
		return err
	}
	now, err := a.target(a.spec.Cells)
	if err != nil {
		return err
	}
	if a.vm.InstanceID() == "" {
		if _, err := a.currentKernel(ctx); err != nil {
			return err
		}
	}
	if job := a.record.Run.Job; job != nil && job.InstanceID == a.vm.InstanceID() {
		if planned := a.record.Run.cell(now.handle); planned != nil && planned.pending() {
			return fmt.Errorf("%w: it belongs to an unfinished run of the notebook, which run_notebook continues", ErrConflict)
		}
	}
	if one := a.record.ofCell(now.handle); one != nil {
		a.run = one
		if again, err := a.followEarlier(ctx, now); err != nil || !again {
			return err
		}
	}
	if err := a.startCell(ctx, now); err != nil {
		return err
	}
	return a.followCell(ctx)
}

// target returns the cell that the call names.
func (a *advance) target(handle string) (*cell, error) {
	if c := a.view.byHandle[handle]; c != nil {
		return c, nil
	}
	i, err := a.view.document.Find(handle)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: cell %d has no code: it is blank, or not a code cell", ErrSpec, i)
}

// followEarlier follows what an earlier call started, and reports whether the cell is to be run anew:
// it did not run, or has ended with another source. If that has not begun, it does not run.
func (a *advance) followEarlier(ctx context.Context, now *cell) (again bool, err error) {
	one, until := a.run, a.opt.Until
	stale := one.Plan[0].Source != now.source
	if stale {
		if err := one.Job.Stop(ctx, a.vm, false); err != nil {
			return false, err
		}
		if !one.Job.Accepted && one.Job.InstanceID == a.vm.InstanceID() { // it never arrived
			a.forget(one)
			return true, nil
		}
		a.opt.Until = time.Now()
	} else if j, err := a.vm.Job(ctx, one.Job.JobID, 0, 0); err == nil && j.State.Ended() {
		a.addNote("this is the end of the execution that an earlier call started; the same call runs the cell again")
	}
	err = a.followCell(ctx)
	a.opt.Until = until
	switch {
	case err != nil:
		return false, err
	case stale && one.Job != nil:
		return false, fmt.Errorf("%w: wait for its end, or interrupt the execution %s", ErrConflict, a.out.Execution.ExecutionID)
	}
	return stale || one.Job == nil && one.Plan[0].Status == CellNotRun, nil
}

// startCell prepares the job of a cell.
func (a *advance) startCell(ctx context.Context, now *cell) error {
	k, err := a.currentKernel(ctx)
	if err != nil {
		return err
	}
	one := newRunRecord(a.spec)
	one.KernelID, one.Planned = k.KernelID, true
	one.plan(now)
	a.record.Runtime = a.spec.Runtime
	a.run, a.now, a.out = &one, reading{}, Outcome{}
	a.record.Cells = append(a.record.Cells[max(0, len(a.record.Cells)+1-maxCells):], a.run)
	step := a.stepFor(&one.Plan[0], now, nil)
	step.Attempts, step.TimeoutSeconds = 1, a.spec.CellTimeout.Seconds() // which go before the cell's tags
	a.prepareJob([]contract.JobStep{step}, []Step{{step.StepID, one.Plan[0].Key, now.source, now.sent}})
	return nil
}

// forget drops a run of a single cell.
func (a *advance) forget(one *RunRecord) {
	a.record.Cells = slices.DeleteFunc(a.record.Cells, func(r *RunRecord) bool { return r == one })
}

// loseCell gives up a run of a single cell, and returns the error that says so.
func (a *advance) loseCell(one *RunRecord, why error) error {
	c := &one.Plan[0]
	a.record.ran(c, Step{Source: c.Source, Sent: c.Sent}, CellLost)
	a.forget(one)
	what := "the VM no longer knows how it ended"
	if errors.Is(why, jobs.ErrReplaced) {
		what = "another VM has replaced the one that had it, so how it ended is unknown"
	}
	return fmt.Errorf("%w: cell %d (id %s): %s", ErrCellLost, c.Index, c.Handle, what)
}

// followCell follows the cell to its end, or until the call's time is over.
func (a *advance) followCell(ctx context.Context) error {
	one := a.run
	if one.KernelID != "" {
		a.record.KernelID = one.KernelID // in which the cell runs
	}
	j, err := a.follow(ctx)
	switch {
	case jobs.IsGone(err):
		return a.loseCell(one, err)
	case err != nil && one.Job == nil: // the VM refused it
		a.forget(one)
		return err
	case err != nil || !one.Job.IsRead(j):
		if a.out.Execution.ExecutionID == "" { // it has not begun
			a.out.Execution = contract.Execution{Status: contract.StatusQueued, Behind: j.Behind}
		}
		return err
	}
	if one.Plan[0].Status == CellNotRun { // its kernel ended before its turn
		a.out.Execution = contract.Execution{Status: contract.StatusCancelled, Reason: j.Reason, End: true}
	}
	one.Job = nil
	a.forget(one)
	return nil
}

// Tags of a cell that a run heeds.
const (
	tagSkip          = "skip-execution"
	tagExpectFailure = "raises-exception"
	tagForce         = "force-execute"
	tagNoRetry       = "no-retry"
	tagFrozen        = "frozen"
	tagSaveState     = "save-state"
	tagTimeout       = "timeout=" // seconds follow
	tagRetries       = "retries=" // a number follows
	tagInjected      = "injected-parameters"
)

// cell is a code cell that is not blank, as it is in the notebook now.
type cell struct {
	index  int
	handle string
	title  string
	code   string // what is sent: the source with its parameters
	source string // digest of the source
	sent   string // digest of code
	tags   []string

	ownTimeout, ownRetries float64  // by its tags; 0 without
	wrong                  []string // tags without a number that fits
}

func newCell(from notebook.Cell, values *parameters.Values) *cell {
	c := &cell{index: from.Index, handle: from.Handle, code: values.Fill(from.Source), source: hash(from.Source), tags: from.Tags}
	c.sent = hash(c.code)
	c.title = plain.Clip(from.Headline(), maxTitle)
	c.ownTimeout, c.ownRetries = c.number(tagTimeout, math.MaxFloat64), c.number(tagRetries, MaxRetries)
	return c
}

func (c *cell) has(tag string) bool { return slices.Contains(c.tags, tag) }

// timeout is how many seconds the cell may take, when the run allows it usual.
func (c *cell) timeout(usual time.Duration) float64 {
	return min(cmp.Or(c.ownTimeout, usual.Seconds()), contract.MaxTimeout.Seconds())
}

// retries is how often the cell is run again after a transient error.
func (c *cell) retries(usual int) int {
	if c.has(tagNoRetry) || c.has(tagExpectFailure) {
		return 0
	}
	return cmp.Or(int(c.ownRetries), usual)
}

// number returns the number of the cell's tag that begins so, 0 without one.
func (c *cell) number(prefix string, most float64) (n float64) {
	for _, tag := range c.tags {
		text, ok := strings.CutPrefix(tag, prefix)
		if !ok {
			continue
		}
		if own, err := strconv.ParseFloat(text, 64); err == nil && own > 0 && own <= most {
			n = own
		} else {
			c.wrong = append(c.wrong, tag)
		}
	}
	return n
}

// view is the notebook's code as a run sees it.
type view struct {
	document *notebook.Document
	cells    []*cell
	byHandle map[string]*cell
	digest   string // of all handles, sources and tags, in order
}

// newView reads the code cells of a document. Values of #@param lines are replaced in what is
// sent.
func newView(d *notebook.Document, values *parameters.Values) *view {
	v := &view{document: d, byHandle: map[string]*cell{}}
	var all []string
	for i := range d.Len() {
		from := d.Cell(i)
		if from.Type != notebook.Code || strings.TrimSpace(from.Source) == "" {
			continue
		}
		c := newCell(from, values)
		v.cells, v.byHandle[c.handle] = append(v.cells, c), c
		all = append(append(all, c.handle, c.sent, c.source), c.tags...)
	}
	v.digest = hash(strings.Join(all, "\x00"))
	return v
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
