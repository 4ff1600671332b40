package nbrun

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// Run is the run of a notebook that belongs to this process alone until Close.
type Run struct {
	dir    string
	spec   Spec
	record *Record
	run    *RunRecord // of the record: its run of the notebook, or of one cell
	unlock func()

	values *parameters.Values
	file   *notebook.File // of the notebook
	work   *notebook.File // that the run reads and writes: file, or its copy
	view   *view          // of work, as last read

	outputs  outputs
	replaced *JobRecord // of the run that this one replaced
	notes    []string   // of this call
	savedAt  time.Time
	stopped  bool // Interrupt was called while no job was there
	repeat   bool // the recorded run has ended, and its answer may be lost: see Delivered
}

// Open opens the run of s.Path whose record is in dir: the unfinished one with the same
// arguments, or else a new one. It writes nothing. ErrBusy means that another call has it.
func Open(dir string, s Spec) (*Run, error) {
	s, err := s.checked()
	if err != nil {
		return nil, err
	}
	r, err := openRecord(dir, s.Path, s.Restart && !s.DryRun)
	if err != nil {
		return nil, err
	}
	r.spec = s
	if err := r.prepare(); err != nil {
		r.Close()
		return nil, err
	}
	r.reconcile()
	return r, nil
}

// openRecord locks and reads the record of the notebook at path.
func openRecord(dir, path string, replaceDamaged bool) (*Run, error) {
	file, err := notebook.OpenFile(path, dir)
	if err != nil {
		return nil, err
	}
	r := &Run{dir: dir, file: file, work: file}
	r.unlock, err = checkpoint.Lock(dir, Name(file.Path()))
	switch {
	case errors.Is(err, checkpoint.ErrBusy):
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), ErrBusy)
	case err != nil:
		return nil, err
	}
	r.record, err = loadRecord(dir, file.Path())
	kept := ""
	if errors.Is(err, ErrDamaged) && replaceDamaged {
		if kept, err = keep.Aside(checkpoint.Path(dir, Name(file.Path()))); err == nil {
			err = checkpoint.ErrNotFound
		}
	}
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		r.record = &Record{Kind: Kind, Version: version, Path: file.Path(), Ran: map[string]CellRun{}}
	case err != nil:
		r.Close()
		return nil, err
	}
	r.run = &r.record.Run
	if kept != "" {
		r.addNote("the record of this notebook's runs could not be read; it is now %s", kept)
	}
	return r, nil
}

// prepare reads what the arguments name.
func (r *Run) prepare() (err error) {
	if r.values, err = parameters.Parse(r.spec.Parameters); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	d, err := r.file.Read()
	if err != nil {
		return err
	}
	if !d.IsPython() {
		return fmt.Errorf("%w: its language is %.40q", ErrNotPython, d.Language())
	}
	r.repeat = r.mayHaveLostAnswer(d)
	return nil
}

// Delivered records that the caller passes on how the run ended. Until then the same call gives the
// same answer, and runs nothing: the relay may have been killed before it could answer, and the
// cells would run twice. It does nothing for a run that has not ended.
func (r *Run) Delivered() error {
	if !r.run.Status.Finished() {
		return nil
	}
	return os.WriteFile(r.delivered(), []byte(r.run.ID), 0o600)
}

// mayHaveLostAnswer reports whether the recorded run is the one that is asked for, of the same code,
// and has ended without an answer that said so.
func (r *Run) mayHaveLostAnswer(d *notebook.Document) bool {
	old := r.run
	if !old.Status.Finished() || old.FinishedAt == nil || old.Spec.identity() != r.spec.identity() {
		return false
	}
	id, err := bounded.ReadFile(r.delivered(), 100)
	return (err != nil || string(id) != old.ID) && newView(d, r.values).digest == old.View
}

// delivered is the file beside the record with the id of the last run whose end was passed on.
func (r *Run) delivered() string {
	return strings.TrimSuffix(checkpoint.Path(r.dir, Name(r.record.Path)), ".json") + ".delivered"
}

// reconcile decides whether the recorded run goes on or a new one starts.
func (r *Run) reconcile() {
	old := r.record.Run
	ended := old.ID == "" || old.Status.Finished() ||
		old.Status == StatusInterrupted && old.Spec.Unsaved // nothing tells a person where it stopped
	switch same := old.Spec.identity() == r.spec.identity(); {
	case r.repeat:
		return
	case same && !ended:
		r.goOn()
		return
	}
	r.record.Run = newRunRecord(r.spec)
	switch {
	case ended:
	case r.spec.DryRun:
		r.addNote("an unfinished run of this notebook exists: %s; the same call without dry_run continues it if its arguments are the same", old.summary())
	default:
		r.replaced = old.Job
		r.addNote("an unfinished run with other arguments is replaced: %s", old.summary())
	}
}

// goOn continues the recorded run, with the arguments that may differ.
func (r *Run) goOn() {
	run := r.run
	if old := run.Spec; old.OnError != r.spec.OnError || old.Retries != r.spec.Retries || old.CellTimeout != r.spec.CellTimeout {
		run.View = "" // the steps that have not begun are other ones now
	}
	run.Spec = r.spec
	if run.Status != StatusInterrupted {
		return
	}
	for i := range run.Plan {
		if c := &run.Plan[i]; c.Status == CellInterrupted {
			c.Status = CellNotRun
			r.addNote("cell %d (id %s), which was interrupted, runs again from its start: what it did before stays", c.Index, c.Handle)
		}
	}
}

// identity is the part of the arguments that a run keeps. The others may change while it goes on.
func (s Spec) identity() Spec {
	return Spec{
		OutputPath: s.OutputPath, Unsaved: s.Unsaved, Cells: s.Cells, Parameters: s.Parameters, Restart: s.Restart, DryRun: s.DryRun,
	}
}

// checked returns the arguments with defaults in place of empty ones. Who reads them has checked their
// values.
func (s Spec) checked() (_ Spec, err error) {
	s.Cells, s.CellTimeout = cmp.Or(s.Cells, selectAll), cmp.Or(s.CellTimeout, contract.DefaultTimeout)
	s.OnError, s.OnNewKernel = cmp.Or(s.OnError, StopOnError), cmp.Or(s.OnNewKernel, StopOnNewKernel)
	if s.OutputPath == "" {
		return s, nil
	}
	if s.OutputPath, err = filepath.Abs(s.OutputPath); err != nil {
		return s, wrong("output_path", "%v", err)
	}
	return s, nil
}

// Close lets other calls run the notebook.
func (r *Run) Close() {
	r.outputs.collector.Close()
	r.unlock()
}

// Record returns the run's record. The caller must not change it.
func (r *Run) Record() *Record { return r.record }

// addNote adds a remark for the answer and the report.
func (r *Run) addNote(format string, args ...any) { r.addNotes([]string{fmt.Sprintf(format, args...)}) }

func (r *Run) addNotes(texts []string) {
	for _, text := range texts {
		for _, notes := range []*[]string{&r.notes, &r.run.Notes} {
			if !slices.Contains(*notes, text) && len(*notes) < maxNotes {
				*notes = append(*notes, text)
			}
		}
	}
}

// save writes the record to disk and syncs it.
func (r *Run) save() error {
	r.record.UpdatedAt = time.Now().UTC()
	r.record.prune()
	_, err := checkpoint.Save(r.dir, Name(r.record.Path), r.record)
	r.savedAt = time.Now()
	return err
}

func newRunRecord(s Spec) RunRecord {
	return RunRecord{
		ID: rand.Text(), Spec: s, Status: StatusRunning, Plan: []CellRecord{}, Notes: []string{},
		StartedAt: time.Now().UTC(),
	}
}

// ran records that a cell ran in the present kernel.
func (r *Record) ran(c *CellRecord, step Step, s CellStatus) {
	r.Runs++
	r.Ran[c.Handle] = CellRun{step.Source, step.Sent, r.KernelID, s, r.Runs}
}

// state is the state of a cell, whatever other cells did.
func (r *Record) state(c *cell) State {
	planned := r.Run.cell(c.handle)
	sent := r.Run.Job != nil && r.Run.Status != StatusNewKernel && planned != nil
	switch {
	case r.ofCell(c.handle) != nil, sent && planned.Status == CellRunning:
		return Running
	case sent && planned.pending():
		return Queued
	}
	return r.stateOfLast(c.handle, c.source)
}

// stateOfLast is the state by the cell's last run that has ended.
func (r *Record) stateOfLast(handle, source string) State {
	last, ran := r.Ran[handle]
	switch {
	case !ran:
		return NeverRun
	case last.KernelID != r.KernelID:
		return Dirty
	case last.Status.Failed():
		return Failed
	case last.Source != source:
		return Dirty
	}
	return Clean
}

// Meet tells a loaded record which kernel its runtime has, and since when that is known: if the
// kernel is newer than what the record says, no cell has run in it.
func (r *Record) Meet(kernelID string, since time.Time) {
	if kernelID != "" && since.After(r.UpdatedAt) {
		r.KernelID = kernelID
	}
}

// ofCell returns the run of a single cell that has not been answered; nil for none.
func (r *Record) ofCell(handle string) *RunRecord {
	i := slices.IndexFunc(r.Cells, func(one *RunRecord) bool { return one.Plan[0].Handle == handle })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// States returns the state of each cell of a document; of cells that can't run, it is empty.
func (r *Record) States(d *notebook.Document) []State {
	all, cells := make([]State, d.Len()), newView(d, &parameters.Values{}).cells
	for i, s := range r.states(cells) {
		all[cells[i].index] = s
	}
	return all
}

// states returns the states of cells in their order. One that ran before a cell above it is dirty.
func (r *Record) states(cells []*cell) []State {
	all, above := make([]State, len(cells)), 0
	for i, c := range cells {
		last := r.Ran[c.handle]
		if all[i] = r.state(c); all[i] == Clean && last.Number < above {
			all[i] = Dirty
		}
		if last.KernelID == r.KernelID {
			above = max(above, last.Number)
		}
	}
	return all
}

// clean returns which cells have succeeded in the present kernel as they are now, with their
// parameters, and after all cells above them.
func (r *Record) clean(cells []*cell) map[string]bool {
	clean := map[string]bool{}
	for i, s := range r.states(cells) {
		c := cells[i]
		clean[c.handle] = s == Clean && r.Ran[c.handle].Sent == c.sent
	}
	return clean
}
