package nbrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
)

// Name is the name of the checkpoint of the notebook at this path, links resolved: a part of the
// file's name, for people, and a hash of the path.
func Name(realPath string) string {
	stem := strings.TrimSuffix(filepath.Base(realPath), filepath.Ext(realPath))
	return "notebook " + shorten(stem, 60) + " " + hash(realPath)[:12]
}

// Load reads the record of the notebook at path. It returns checkpoint.ErrNotFound if no cell
// of it was run through this computer, or ErrDamaged.
func Load(dir, path string) (*Record, error) {
	file, err := notebook.OpenFile(path, dir)
	if err != nil {
		return nil, err
	}
	return loadRecord(dir, file.Path())
}

func loadRecord(dir, realPath string) (*Record, error) {
	name := Name(realPath)
	entry, err := checkpoint.Load(dir, name, nil)
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrTooLarge) {
		return nil, err
	}
	r, err := Read(entry)
	if err != nil || r.Path != realPath {
		return nil, fmt.Errorf("%w: %q", ErrDamaged, checkpoint.Path(dir, name))
	}
	return r, nil
}

// Read returns the record in a checkpoint, or ErrDamaged.
func Read(e checkpoint.Entry) (*Record, error) {
	r := Record{Ran: map[string]CellRun{}}
	if json.Unmarshal(e.Data, &r) != nil || !r.isConsistent() {
		return nil, ErrDamaged
	}
	for _, run := range append(r.Cells, &r.Run, &RunRecord{Job: r.Run.Left}) {
		if j := run.Job; j != nil { // what was not written into the notebook is read again
			if j.Offset = 0; j.Written < j.Entry {
				j.Entry, j.Execution, j.Read = j.Written, "", ""
			}
		}
	}
	return &r, nil
}

// isConsistent reports whether the record has what its readers take for granted.
func (r *Record) isConsistent() bool {
	damaged := func(one *RunRecord) bool {
		return one == nil || len(one.Plan) != 1 || one.Job == nil || !one.Job.isConsistent()
	}
	return r.Kind == Kind && r.Version == version && r.Ran != nil && (r.Run.Job == nil || r.Run.Job.isConsistent()) && (r.Run.Left == nil || r.Run.Left.isConsistent()) &&
		!slices.ContainsFunc(r.Cells, damaged)
}

// isConsistent reports whether the job can be sent, or read.
func (j *JobRecord) isConsistent() bool { return j.IsConsistent() && j.Written >= 0 }

// prune bounds what grows from run to run.
func (r *Record) prune() {
	if len(r.Ran) > maxRan {
		maps.DeleteFunc(r.Ran, func(handle string, _ CellRun) bool { return r.Run.cell(handle) == nil })
	}
}

// summary says in a few words how far a run is.
func (r *RunRecord) summary() string {
	return fmt.Sprintf("%d of %s were done", r.done(), plain.Count(len(r.Plan), "cell"))
}

// done counts the cells that are not to be run any more.
func (r *RunRecord) done() (n int) {
	for i := range r.Plan {
		if c := &r.Plan[i]; !c.pending() && c.Status != CellLost {
			n++
		}
	}
	return n
}

// unsuccessful returns the last cell that failed or was skipped; nil for none.
func (r *RunRecord) unsuccessful() (last *CellRecord) {
	for i := range r.Plan {
		if s := r.Plan[i].Status; s.Failed() || s == CellSkipped {
			last = &r.Plan[i]
		}
	}
	return last
}

// cell returns the record of the planned cell that has a handle; nil for none.
func (r *RunRecord) cell(handle string) *CellRecord {
	return r.first(func(c CellRecord) bool { return c.Handle == handle })
}

// keyed returns the record of the planned cell with a key; nil for none.
func (r *RunRecord) keyed(key int) *CellRecord {
	return r.first(func(c CellRecord) bool { return c.Key == key })
}

func (r *RunRecord) first(is func(CellRecord) bool) *CellRecord {
	if i := slices.IndexFunc(r.Plan, is); i >= 0 {
		return &r.Plan[i]
	}
	return nil
}

// handle is that of the planned cell with a key.
func (r *RunRecord) handle(key int) string {
	if c := r.keyed(key); c != nil {
		return c.Handle
	}
	return ""
}

// plan adds a cell to the plan.
func (r *RunRecord) plan(c *cell) {
	r.Plan = append(r.Plan, CellRecord{
		Key: len(r.Plan) + 1, Handle: c.handle, Index: c.index, Title: c.title, Source: c.source, Sent: c.sent, Status: CellNotRun,
	})
}

// pending reports whether the cell is to be run.
func (c *CellRecord) pending() bool {
	return (c.Status == CellNotRun || c.Status == CellRunning) && c.Why == ""
}

// Failed reports whether a cell ended, and not as the notebook wants.
func (s CellStatus) Failed() bool {
	switch s {
	case CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost:
		return true
	}
	return false
}
