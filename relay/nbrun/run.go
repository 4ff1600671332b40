package nbrun

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
	"colabrelay/shared/aside"
	"colabrelay/shared/contract"
)

// Run is the run of a notebook that belongs to this process alone until Close.
type Run struct {
	dir    string
	spec   Spec
	record *Record
	unlock func()

	values *parameters.Values
	policy RetryPolicy
	file   *notebook.File // of the notebook
	work   *notebook.File // that the run reads and writes: file, or its copy
	view   *view          // of work, as last read

	readings map[string]*reading // by request_id, of what this process has read
	outputs  outputs
	replaced []*Flight      // of the run that this one replaced
	recorded *RunRecord     // the unfinished run, of a dry run
	dirt     *dataflow.Plan // what is dirty, if the selection depends on it
	notes    []string       // of this call
	savedAt  time.Time
	reports  string // the path of the report
	repeat   bool   // the recorded run has ended, and its answer may be lost: see Delivered
}

// Open opens the run of s.Path whose record is in dir: the unfinished one with the same
// arguments, or else a new one. It writes nothing. ErrBusy means that another call has it.
func Open(dir string, s Spec) (*Run, error) {
	s, err := s.checked()
	if err != nil {
		return nil, err
	}
	r, err := openRecord(dir, s.Path, s.OnChange == RestartChanged)
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
	r := &Run{dir: dir, file: file, work: file, readings: map[string]*reading{}}
	r.unlock, err = checkpoint.Lock(dir, Name(file.Path()))
	switch {
	case errors.Is(err, checkpoint.ErrBusy):
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), ErrBusy)
	case err != nil:
		return nil, err
	}
	r.record, err = loadRecord(dir, file.Path())
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		r.record, err = newRecord(file.Path()), nil
	case errors.Is(err, ErrDamaged) && replaceDamaged:
		err = r.moveAside()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// moveAside renames a record that can't be read, and starts a new one.
func (r *Run) moveAside() error {
	path := checkpoint.Path(r.dir, Name(r.file.Path()))
	kept, err := aside.Move(path)
	if err != nil {
		return err
	}
	r.record = newRecord(r.file.Path())
	r.addNote("the record of this notebook's runs could not be read; it is now %s", kept)
	return nil
}

// prepare reads what the arguments name.
func (r *Run) prepare() (err error) {
	if r.values, err = parameters.Parse(r.spec.Parameters); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if r.policy, err = NewRetryPolicy(r.spec.RetryOn); err != nil {
		return err
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

// reconcile decides whether the recorded run goes on or a new one starts.
func (r *Run) reconcile() {
	old := &r.record.Run
	if r.spec.DryRun {
		if old.ID != "" && !old.Status.Finished() {
			r.recorded = old
		}
		own := *r.record
		own.Run = newRunRecord(r.spec)
		r.record = &own
		return
	}
	same := old.Spec.identity() == r.spec.identity()
	ended := old.ID == "" || old.Status.Finished() ||
		old.Status == StatusInterrupted && old.Spec.Save == SaveNone // nothing tells a person where it stopped
	switch {
	case r.repeat:
		return
	case !ended && same:
		r.goOn()
		return
	}
	if !ended {
		r.replaced = old.Flights
		r.addNote("an unfinished run with other arguments is replaced: %s", old.summary())
	}
	r.record.Run = newRunRecord(r.spec)
}

// goOn continues the recorded run, with the arguments that may differ.
func (r *Run) goOn() {
	run := &r.record.Run
	run.Spec = r.spec
	if run.Status == StatusInterrupted || run.Status == StatusNewKernel {
		run.Stopping = ""
		for i := range run.Plan {
			if c := &run.Plan[i]; c.Status == CellInterrupted {
				c.Status = CellNotRun
			}
		}
	}
}

// identity is the part of the arguments that a run keeps. The others may change while it goes on.
func (s Spec) identity() Spec {
	return Spec{
		Save: s.Save, OutputPath: s.OutputPath, Cells: s.Cells, Parameters: s.Parameters, Restart: s.Restart, DryRun: s.DryRun,
	}
}

// checked returns the arguments with defaults in place of empty ones, or what is wrong with them.
func (s Spec) checked() (Spec, error) {
	usual := Defaults(s.Path)
	for _, choice := range []struct {
		name    string
		value   *string
		allowed []string
	}{
		{"on_error", (*string)(&s.OnError), []string{string(usual.OnError), string(StopOnError), string(ContinueAfter)}},
		{"on_new_kernel", (*string)(&s.OnNewKernel), []string{string(usual.OnNewKernel), string(StopOnNewKernel)}},
		{"on_change", (*string)(&s.OnChange), []string{string(usual.OnChange), string(RefuseChanged), string(RestartChanged)}},
	} {
		if err := check(choice.name, choice.value, choice.allowed); err != nil {
			return s, err
		}
	}
	if s.Cells == "" {
		s.Cells = usual.Cells
	}
	if s.CellTimeout == 0 {
		s.CellTimeout = usual.CellTimeout
	}
	return s.bounded()
}

// check refuses a value that is not allowed, and puts the first one in place of an empty one.
func check(name string, value *string, allowed []string) error {
	if *value == "" {
		*value = allowed[0]
	}
	for _, a := range allowed {
		if *value == a {
			return nil
		}
	}
	return wrong(name, "%.40q is not one of %s", *value, strings.Join(allowed, ", "))
}

func (s Spec) bounded() (Spec, error) {
	switch {
	case s.MaxRetries < 0 || s.MaxRetries > MaxRetries:
		return s, wrong("max_retries", "%d is not from 0 to %d", s.MaxRetries, MaxRetries)
	case s.RetryBudget < 0 || s.RetryBudget > MaxRetryBudget:
		return s, wrong("retry_budget", "%d is not from 0 to %d", s.RetryBudget, MaxRetryBudget)
	case s.CellTimeout < 0 || s.CellTimeout > contract.MaxTimeout:
		return s, wrong("cell_timeout_seconds", "%s is not from 0 to %s", s.CellTimeout, contract.MaxTimeout)
	case s.RunTimeout < 0 || s.RunTimeout > MaxRunTimeout:
		return s, wrong("run_timeout_seconds", "%s is not from 0 to %s", s.RunTimeout, MaxRunTimeout)
	case (s.Save == SaveCopy) != (s.OutputPath != ""):
		return s, fmt.Errorf("%w: output_path and saving into a copy belong together", ErrSpec)
	}
	if s.OutputPath != "" {
		path, err := filepath.Abs(s.OutputPath)
		if err != nil {
			return s, wrong("output_path", "%v", err)
		}
		s.OutputPath = path
	}
	return s, nil
}

// Close lets other calls run the notebook.
func (r *Run) Close() { r.unlock() }

// Record returns the run's record. The caller must not change it.
func (r *Run) Record() *Record { return r.record }

// Path is the run's file.
func (r *Run) Path() string { return checkpoint.Path(r.dir, Name(r.record.Path)) }

// addNote adds a remark for the answer and the report.
func (r *Run) addNote(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.notes = appendNote(r.notes, text)
	r.record.Run.Notes = appendNote(r.record.Run.Notes, text)
}

func (r *Run) addNotes(texts []string) {
	for _, text := range texts {
		r.addNote("%s", text)
	}
}

func appendNote(notes []string, text string) []string {
	for _, n := range notes {
		if n == text {
			return notes
		}
	}
	if len(notes) == maxNotes {
		return notes
	}
	return append(notes, text)
}

// save writes the record to disk and syncs it.
func (r *Run) save() error {
	r.record.UpdatedAt = time.Now().UTC()
	r.record.prune()
	_, err := checkpoint.Save(r.dir, Name(r.record.Path), r.record)
	if errors.Is(err, checkpoint.ErrTooLarge) {
		r.record.shed()
		_, err = checkpoint.Save(r.dir, Name(r.record.Path), r.record)
	}
	r.savedAt = time.Now()
	return err
}

func newRunRecord(s Spec) RunRecord {
	return RunRecord{
		ID: rand.Text(), Spec: s, Status: StatusRunning, Plan: []CellRecord{}, Flights: []*Flight{}, Notes: []string{},
		StartedAt: time.Now().UTC(), Confirms: true,
	}
}
