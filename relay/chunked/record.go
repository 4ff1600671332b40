package chunked

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/jobs"
)

const (
	Kind    = "chunked" // of the checkpoint
	version = 2
)

// Status is the status of a run.
type Status string

// Statuses of a run. A run that an execution stopped has the status of that execution.
const (
	StatusRunning  Status = "running"
	StatusFinished Status = "finished"
	// The kernel asks before it runs anything: OnStop answers.
	StatusVariablesLost    Status = "variables_lost"       // it lacks what iterations passed on
	StatusVariablesChanged Status = "variables_changed"    // other code changed what iterations pass on
	StatusIncomplete       Status = "iteration_incomplete" // an iteration changed something and did not end
)

// asks reports whether the status is one that OnStop answers.
func (s Status) asks() bool { return answers[s] != nil }

// Record is the content of a run's file.
type Record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Key     string `json:"key"` // names the run in the kernel
	Status  Status `json:"status"`
	Runtime string `json:"runtime"`

	Setup       string `json:"setup_code"`
	Loop        string `json:"loop_code"`
	N           int64  `json:"n_iterations"`
	BatchSize   int64  `json:"batch_size"`
	Independent bool   `json:"independent"`
	Restarted   bool   `json:"restarted"` // the run was started by Restart

	Done     int64 `json:"completed"` // iterations 0 to Done-1 are done
	Recorded int64 `json:"recorded"`  // those that count in a new kernel: their round has ended

	Job        *jobs.Ticket `json:"job"`        // nil if there is none to read
	Answer     OnStop       `json:"answer"`     // that this job is given, or the next one
	Placed     *Copy        `json:"placed"`     // that the last job may load
	Superseded bool         `json:"superseded"` // the arguments have changed since the last job was made
	Replaces   string       `json:"replaces"`   // the key of the run that this one replaced
	Abandoned  *jobs.Ticket `json:"abandoned"`  // the job of that run, until it is stopped
	KernelID   string       `json:"kernel_id"`

	Timed          int64   `json:"timed"` // how many iterations MeanSeconds covers
	MeanSeconds    float64 `json:"mean_seconds"`
	PaceSeconds    float64 `json:"pace_seconds"`    // mean of about the last paceWindow of them
	SlowestSeconds float64 `json:"slowest_seconds"` // of an iteration or the setup

	Output         string   `json:"last_output"` // the end of the printed text, not cleaned
	Results        []Value  `json:"results"`
	ResultBytes    int      `json:"result_bytes"`
	ResultsDropped int64    `json:"results_dropped"` // because of maxResultBytes
	Failure        *Failure `json:"failure"`
	Ending         bool     `json:"ending"` // the kernel said that all iterations are done

	Carried    []string  `json:"carried"` // the variables that iterations pass on; null until a round has ended
	Unsaveable []unkept  `json:"unkept"`  // what can't be kept of them, and why
	OnVM       *Copy     `json:"kept_on_vm"`
	Kept       *Copy     `json:"kept"`       // on this computer
	KeepTried  time.Time `json:"keep_tried"` // the last fetch
	KeepBytes  int64     `json:"keep_bytes"` // of all fetches

	UpdatedAt time.Time `json:"updated_at"`
}

// Value is the value of result after one iteration.
type Value struct {
	Iteration int64           `json:"i"`
	Value     json.RawMessage `json:"value"`             // JSON; null if Omitted is set
	Omitted   string          `json:"omitted,omitempty"` // why there is no value
}

// Failure is why a run stopped.
type Failure struct {
	Status    string   `json:"status"`
	Iteration *int64   `json:"iteration"` // null if no iteration raised: a failed setup, a syntax error
	Setup     bool     `json:"setup,omitempty"`
	Message   string   `json:"message"`
	Variables []string `json:"variables"`        // those that were lost or changed, as far as the kernel names them
	Detail    string   `json:"detail,omitempty"` // why the copy of them could not be loaded
}

func newRecord(s Spec) *Record {
	return &Record{
		Kind: Kind, Version: version, Key: rand.Text(), Status: StatusRunning, Runtime: s.Runtime,
		Setup: s.Setup, Loop: s.Loop, N: s.N, BatchSize: s.BatchSize, Independent: s.Independent,
		Results: []Value{}, UpdatedAt: time.Now().UTC(),
	}
}

// Load reads the record of the run with that name. It returns checkpoint.ErrNotFound, ErrDamaged
// or ErrNotChunked.
func Load(dir, name string) (r *Record, err error) {
	entry, err := checkpoint.Load(dir, name, nil)
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrTooLarge):
		err = ErrDamaged
	case err != nil:
		return nil, err
	case entry.Kind() != Kind:
		err = ErrNotChunked
	default:
		if r, err = Read(entry); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%q: %w", name, err)
}

// Read returns the record in a checkpoint, or ErrDamaged.
func Read(e checkpoint.Entry) (*Record, error) {
	var r Record
	if json.Unmarshal(e.Data, &r) != nil || !r.isConsistent() {
		return nil, ErrDamaged
	}
	if r.Job != nil && !r.Job.IsConsistent() {
		r.Job = nil // the kernel itself knows what has run
	}
	return &r, nil
}

// isConsistent reports whether the parts of the record fit each other.
func (r *Record) isConsistent() bool {
	return r.Version == version && r.Key != "" && r.N > 0 && r.BatchSize > 0 &&
		r.Recorded >= 0 && r.Recorded <= r.Done
}

// Bounds of a record.
const (
	maxOutput      = 4 << 10  // bytes of printed text
	maxResultBytes = 16 << 20 // of all values together
	perResult      = 64       // bytes that the file needs for a value besides its JSON
)

// Remaining is how many iterations are left.
func (r *Record) Remaining() int64 { return max(0, r.N-r.Done) }

// confirm sets Done to what the kernel reports. If that is less than before, the record
// goes back, because the kernel's variables contain only the iterations that it has run.
func (r *Record) confirm(done int64) {
	if done < r.Recorded { // the iterations run again, and their results may differ
		r.Recorded = done
		if !r.OnVM.fits(done) {
			r.OnVM = nil
		}
		if !r.Kept.fits(done) {
			r.Kept = nil
		}
	}
	r.Done = done
	for i := len(r.Results) - 1; i >= 0 && r.Results[i].Iteration >= done; i-- {
		r.ResultBytes -= r.Results[i].size()
		r.Results = r.Results[:i]
	}
}

// paceWindow is how many iterations the pace is about: the first ones are often slower, and the
// work of an iteration may grow.
const paceWindow = 50

// addTimes adds the times of a marker's iterations.
func (r *Record) addTimes(m marker) {
	r.Timed += m.Count
	share := float64(m.Count) / float64(min(r.Timed, max(m.Count, paceWindow)))
	r.PaceSeconds += (m.Seconds/float64(m.Count) - r.PaceSeconds) * share
	r.MeanSeconds += (m.Seconds - r.MeanSeconds*float64(m.Count)) / float64(r.Timed)
}

// addValue keeps a value, if maxResultBytes allows it.
func (r *Record) addValue(v Value) {
	if r.ResultBytes+v.size() > maxResultBytes {
		r.ResultsDropped++
		return
	}
	r.ResultBytes += v.size()
	r.Results = append(r.Results, v)
}

// size is how many bytes of maxResultBytes a value uses.
func (v Value) size() int { return len(v.Value) + len(v.Omitted) + perResult }

// addOutput keeps the end of the printed text.
func (r *Record) addOutput(text string) {
	r.Output += text
	r.Output = strings.ToValidUTF8(r.Output[max(0, len(r.Output)-maxOutput):], "")
}

// finish ends the run. Iterations beyond N, which ran before N was reduced, no longer count.
func (r *Record) finish() {
	r.confirm(min(r.Done, r.N))
	r.Status, r.Failure, r.Job, r.Ending = StatusFinished, nil, nil, true
}
