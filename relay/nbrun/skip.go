package nbrun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/jobs"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Facts are the names of one cell, as the kernel's Python reads its code without running it.
type Facts struct {
	Reads []string `json:"reads,omitempty"`
	// Makes are bound, or mentioned in a call or in an assignment to an attribute or an item: their
	// values may change. Modules, functions and classes change by being bound only.
	Makes []string `json:"makes,omitempty"`
	// Sure are bound by every run that succeeds: what earlier cells made of them no longer matters.
	Sure []string `json:"sure,omitempty"`
}

// Bounds of the facts of a notebook.
const (
	factsLimit  = 40 * time.Second // on the VM
	factsReport = 4 << 20          // bytes
	maxFactName = 200              // bytes of a name
	factsMIME   = "application/vnd.colab-relay.cells+json"
)

// linkCells derives from the facts which cells each planned cell needs. Of a cell without facts
// nothing is known: it needs none, and none needs it.
func (a *advance) linkCells() map[string][]need {
	if a.spec.OnError != SkipDependants || a.run.Facts == nil {
		return map[string][]need{}
	}
	var cells []named
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		now := a.view.byHandle[c.Handle]
		if now == nil || c.Why != "" && c.Status != CellSkipped {
			continue
		}
		facts, read := a.run.Facts[now.sent]
		if !read {
			a.addNote("cell %d (id %s) is new or was edited during the run: which cells need it is not known, so none is skipped for it", c.Index, c.Handle)
		}
		cells = append(cells, named{c.Handle, facts, now.has(tagExpectFailure), now.has(tagForce)})
	}
	return needsOf(cells)
}

// named is a cell with its names.
type named struct {
	handle    string
	facts     Facts
	tolerated bool // its failure is expected, and nothing is skipped for it
	forced    bool // it is not skipped
}

// needsOf returns which cells each cell needs: those before it that make a name which it reads, back
// to the last cell that certainly binds it, or is itself skipped for those before it. A cell that
// one of these needs is needed through it.
func needsOf(cells []named) map[string][]need {
	makers := map[string][]string{} // by name: the cells that make its value
	all := map[string][]need{}
	for _, c := range cells {
		reads := map[string]bool{}
		for _, name := range c.facts.Reads {
			reads[name] = true
			for _, maker := range makers[name] {
				all[c.handle] = addName(all[c.handle], maker, name)
			}
		}
		if c.tolerated {
			continue
		}
		for _, name := range c.facts.Sure {
			delete(makers, name)
		}
		for _, name := range c.facts.Makes {
			if reads[name] && !c.forced {
				delete(makers, name)
			}
			makers[name] = append(makers[name], c.handle)
		}
	}
	return all
}

// need is a cell that another one needs, because it makes names that the other one uses.
type need struct {
	cell  string
	names []string
}

// why says why a cell is skipped that lacks this; empty for nil.
func (n *need) why() string {
	if n == nil {
		return ""
	}
	var names []string
	for _, name := range n.names { // code in the kernel can report any text as one
		names = append(names, plain.Word(shorten(name, maxFactName)))
	}
	return fmt.Sprintf("it uses %s, which the cell with id %s would have made", strings.Join(names, ", "), n.cell)
}

// addName adds a name that a cell makes to what is needed.
func addName(needs []need, maker, name string) []need {
	at := slices.IndexFunc(needs, func(n need) bool { return n.cell == maker })
	if at < 0 {
		return append(needs, need{maker, []string{name}})
	}
	if n := &needs[at]; len(n.names) < maxLacking {
		n.names = append(n.names, name)
	}
	return needs
}

// split returns the steps in a job that a cell needs, and the first of the cells that it needs that
// did not succeed before; nil for none.
func (a *advance) split(c *CellRecord, inJob map[int]string) (steps []string, lacking *need) {
	for _, n := range a.needs[c.Handle] {
		before := a.run.cell(n.cell)
		switch {
		case before == nil:
		case inJob[before.Key] != "":
			steps = append(steps, inJob[before.Key])
		case lacking == nil && (before.Status.Failed() || before.Status == CellSkipped):
			lacking = &n
		}
	}
	return steps, lacking
}

// readFacts asks the kernel for the names of all cells, in one call before the first job is sent, if
// on_error asks for that.
func (a *advance) readFacts(ctx context.Context) error {
	if a.spec.OnError != SkipDependants || a.run.Facts != nil {
		return nil
	}
	codes := map[string]string{} // by their digests
	for _, c := range a.view.cells {
		if a.run.cell(c.handle) != nil {
			codes[c.sent] = c.code
		}
	}
	facts, err := askFacts(ctx, a.vm, codes, a.opt.Until)
	if _, late := errors.AsType[*kernelcall.LateError](err); late || errors.Is(err, kernelcall.ErrSlow) {
		a.addNote("the kernel is busy, and must find out which cells depend on which before the run can begin")
		return errEnough
	}
	if err != nil {
		return fmt.Errorf("finding out which cells depend on which, as on_error=%q asks (the same call tries again; other values of on_error need no such answer): %w", a.spec.OnError, err)
	}
	a.run.Facts = facts
	return nil
}

// askFacts asks the kernel for the names in each of the codes.
func askFacts(ctx context.Context, vm VM, codes map[string]string, until time.Time) (map[string]Facts, error) {
	text, err := json.Marshal(codes)
	if err != nil {
		return nil, err
	}
	call := kernelpy.Call{Function: "cells.facts.of_packed", Arguments: []any{kernelpy.Packed(string(text))}, MIME: factsMIME}
	report, _, err := kernelcall.Ask(ctx, vm, call, kernelcall.Options{
		Until: until, Limit: factsLimit, MaxReport: factsReport,
	})
	if err != nil {
		return nil, err
	}
	var facts map[string]Facts
	if err := client.Decode(ctx, report, &facts); err != nil || len(facts) != len(codes) {
		return nil, fmt.Errorf("the kernel's answer does not fit the %d cells that it was asked about", len(codes))
	}
	return facts, nil
}

// changed reports whether the notebook's code was edited since the run last compared it. A
// notebook that can't be read just now is compared later.
func (a *advance) changed() bool {
	if a.look() != nil || a.isCell() || a.view.digest == a.run.View {
		return false
	}
	a.followHandles()
	return true
}

// followChanges adapts the run to edits of the notebook: what has not begun follows the file.
func (a *advance) followChanges(ctx context.Context) error {
	job := a.run.Job
	if job != nil && !job.Accepted {
		return nil // it is changed when the VM has it
	}
	if err := a.look(); err != nil || !a.changed() {
		return err
	}
	a.adaptPlan()
	if job != nil {
		if done, err := a.editJob(ctx); err != nil || !done {
			return err
		}
	}
	a.run.View = a.view.digest
	return nil
}

// followHandles finds planned cells under their new handles. Editors give cells other ids when they
// save; where cells have no ids, handles (#index-hash8) contain indexes, which change when a cell is inserted
// or deleted above. If the cell of a handle has vanished, the cells with its source that have no
// lasting id are taken for those of the plan, in their order. Without this, cells that have run
// would count as deleted, and run again as new ones.
func (a *advance) followHandles() {
	vanished, free := map[string]bool{}, map[string][]string{} // by source
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		vanished[c.Source] = vanished[c.Source] || a.view.byHandle[c.Handle] == nil
	}
	for _, c := range a.view.cells {
		if vanished[c.source] && (strings.HasPrefix(c.handle, "#") || a.run.cell(c.handle) == nil) {
			free[c.source] = append(free[c.source], c.handle)
		}
	}
	renamed := map[string]string{}
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		left := free[c.Source]
		if len(left) == 0 || !strings.HasPrefix(c.Handle, "#") && a.view.byHandle[c.Handle] != nil {
			continue
		}
		if free[c.Source] = left[1:]; left[0] != c.Handle {
			renamed[c.Handle] = left[0]
		}
	}
	if len(renamed) > 0 {
		a.rename(renamed)
	}
}

// rename gives cells their new handles. A write meanwhile may have found none of the old ones.
func (a *advance) rename(renamed map[string]string) {
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		c.Handle = cmp.Or(renamed[c.Handle], c.Handle)
	}
	ran := map[string]CellRun{}
	for from, to := range renamed {
		if last, has := a.record.Ran[from]; has {
			ran[to] = last
			delete(a.record.Ran, from)
		}
	}
	maps.Copy(a.record.Ran, ran)
	a.needs = nil
	a.outputs.markAll()
}

// adaptPlan takes over the notebook's new cells, sources and order.
func (a *advance) adaptPlan() {
	run, reached := a.run, 0
	for i := range run.Plan {
		c := &run.Plan[i]
		now, waits := a.view.byHandle[c.Handle], c.pending() || c.Status == CellSkipped
		if now == nil {
			continue
		}
		c.Index, c.Title = now.index, now.title
		if !waits || c.Status == CellRunning {
			reached = max(reached, now.index)
		}
		switch {
		case waits:
			c.Source = now.source
		case now.source != c.Source:
			a.addNote("cell %d (id %s) was edited after it had run: it is dirty", c.Index, c.Handle)
		}
	}
	// The cells of a selection that names a deleted one are not chosen anew; dirty names all from the
	// cell with which the run began.
	chosen, _ := a.choose(func(c *cell) bool { return len(run.Plan) > 0 && run.Plan[0].Handle == c.handle })
	for _, c := range chosen {
		switch {
		case run.cell(c.handle) != nil:
		case c.index < reached:
			a.addNote("the new cell %d (id %s) is above cells that have run: it was not run", c.index, c.handle)
		default:
			run.plan(c)
		}
	}
	sort.SliceStable(run.Plan, func(i, j int) bool { return run.Plan[i].Index < run.Plan[j].Index })
}

// maxEdits is how often a call edits the job again: each time, another step may have begun meanwhile.
const maxEdits = 5

// editJob replaces the steps of the job that have not begun by those that the notebook has now. If
// it is not done, another step has begun meanwhile.
func (a *advance) editJob(ctx context.Context) (done bool, err error) {
	job := a.run.Job
	j, err := a.vm.Job(ctx, job.JobID, contract.MaxJobSteps, 0)
	switch {
	case jobs.IsRefused(err) || err == nil && j.State.Ended(): // reading the job says what became of it
		return true, nil
	case err != nil:
		return false, err
	case !job.isAt(j.Revision) || j.Next < 0 || j.Next > len(job.Steps):
		a.addNote("another program edited the run on the VM: cells of the notebook that the run lacks will run after it has ended")
		return true, nil
	}
	job.Proposed = nil
	begun, left, from := map[int]string{}, job.Steps[j.Next:], ""
	for _, s := range job.Steps[:j.Next] {
		begun[s.Cell] = s.ID
	}
	sent, steps := a.stepsFor(begun)
	if slices.Equal(steps, left) {
		return true, nil
	}
	if len(left) > 0 {
		from = left[0].ID
	}
	job.Revision, job.Proposed = j.Revision, slices.Concat(job.Steps[:j.Next], steps)
	if err := a.save(); err != nil {
		return false, err
	}
	err = job.Edit(ctx, a.vm, from, sent)
	switch refused, _ := errors.AsType[*contract.Error](err); {
	case err == nil:
		return job.isAt(job.Revision), nil
	case !jobs.IsRefused(err):
		return false, err
	case jobs.IsGone(err):
	case refused.Code == contract.CodeConflict && a.edits < maxEdits:
		a.edits++ // an answer may have been lost: if the edit has arrived, the revision shows it
		return false, nil
	default:
		a.addNote("the VM refused the notebook's edits, so its cells run as they were sent: %s", plain.Line(err.Error()))
	}
	job.Proposed = nil
	return true, nil
}

// isAt reports whether Steps are those of the job's present revision. It takes over the edit that
// was about to be sent if that has arrived.
func (j *JobRecord) isAt(revision int) bool {
	if revision == j.At+1 && j.Proposed != nil {
		j.Steps, j.Proposed, j.At = j.Proposed, nil, revision
	}
	return revision == j.At
}
