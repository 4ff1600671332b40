package chunked

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
)

const (
	kind    = "chunked"
	version = 1

	maxRanges      = 1000     // past it the oldest are joined
	maxOutput      = 4 << 10  // bytes of output kept
	maxResultBytes = 16 << 20 // of all values together, with perResult for each
	perResult      = 64
)

// Status is where a run stands.
type Status string

// Statuses of a run. One that stopped has the status of the batch that stopped it.
const (
	StatusRunning  Status = "running"
	StatusFinished Status = "finished"
	// StatusVariablesLost: the kernel lacks the variables that iterations build on.
	StatusVariablesLost Status = "variables_lost"
)

// Record is what a run's file holds.
type Record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Key     string `json:"key"` // names the run in the kernel's own record
	Status  Status `json:"status"`
	Runtime string `json:"runtime"`

	N           int64   `json:"n_iterations"`
	SetupSHA256 string  `json:"setup_sha256"`
	LoopSHA256  string  `json:"loop_sha256"`
	Restarted   bool    `json:"restarted"` // begun by Restart
	Done        int64   `json:"completed"` // iterations 0 to Done-1
	Ranges      []Range `json:"ranges"`

	InFlight   *Batch `json:"in_flight"`
	InstanceID string `json:"instance_id"` // of the last batch that was answered
	KernelID   string `json:"kernel_id"`

	Timed          int64   `json:"timed"` // iterations in the mean
	MeanSeconds    float64 `json:"mean_seconds"`
	SlowestSeconds float64 `json:"slowest_seconds"`
	SetupSeconds   float64 `json:"setup_seconds"`

	Output         string   `json:"last_output"` // end of what was printed last, raw
	Results        []Value  `json:"results"`
	ResultBytes    int      `json:"result_bytes"`
	ResultsDropped int64    `json:"results_dropped"` // past the bound of all values together
	Failure        *Failure `json:"failure"`

	VariableRecord

	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// Range is iterations From to To-1, run in one kernel's life.
type Range struct {
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	KernelID   string `json:"kernel_id"`
	InstanceID string `json:"instance_id"`
}

// Batch is a batch that was submitted and has not been seen to end.
type Batch struct {
	RequestID   string    `json:"request_id"`
	InstanceID  string    `json:"instance_id"`
	ExecutionID string    `json:"execution_id"` // empty until the submit was answered
	CodeSHA256  string    `json:"code_sha256"`
	Lo          int64     `json:"lo"`
	Hi          int64     `json:"hi"`
	Offset      int64     `json:"offset"` // events before it were taken in
	OnNew       onNew     `json:"on_new"`
	Analyse     bool      `json:"analyse"`      // it tells what iterations carry
	WithPackage bool      `json:"with_package"` // its code includes the Python package
	Timeout     float64   `json:"timeout_seconds"`
	SubmittedAt time.Time `json:"submitted_at"`
}

// Value is what one iteration left in result.
type Value struct {
	Iteration int64           `json:"i"`
	Value     json.RawMessage `json:"value"`             // JSON; null when Omitted says why
	Omitted   string          `json:"omitted,omitempty"` // why the value is not here
}

// Failure is why a run stopped.
type Failure struct {
	Status    string `json:"status"`
	Iteration *int64 `json:"iteration"` // null when it was no iteration: the set-up, code that is no Python
	Message   string `json:"message"`
}

func newRecord(s Spec) *Record {
	now := time.Now().UTC()
	return &Record{
		Kind: kind, Version: version, Key: rand.Text(), Status: StatusRunning, Runtime: s.Runtime,
		N: s.N, SetupSHA256: hash(s.Setup), LoopSHA256: hash(s.Loop),
		Ranges: []Range{}, Results: []Value{}, CreatedAt: now, UpdatedAt: now,
	}
}

func hash(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// Load reads the run kept under name. It gives checkpoint.ErrNotFound, ErrDamaged
// or ErrForeign.
func Load(dir, name string) (*Record, error) {
	entry, err := checkpoint.Load(dir, name, nil)
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrTooLarge):
		return nil, fmt.Errorf("%q: %w", name, ErrDamaged)
	case err != nil:
		return nil, err
	case !IsChunked(entry):
		return nil, fmt.Errorf("%q: %w", name, ErrNotChunked)
	}
	var s Record
	if json.Unmarshal(entry.Data, &s) != nil || !s.sound() {
		return nil, fmt.Errorf("%q: %w", name, ErrDamaged)
	}
	s.weigh()
	return &s, nil
}

// weigh takes away the white space that the file may have put into values, and
// counts their bytes anew: they are held against a bound, and taken off again.
func (s *Record) weigh() {
	s.ResultBytes = 0
	for i, v := range s.Results {
		s.Results[i].Value = compact(v.Value)
		s.ResultBytes += len(s.Results[i].Value) + perResult
	}
}

// compact is JSON without white space; what is none stays.
func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return value
	}
	return b.Bytes()
}

// IsChunked reports whether a checkpoint is a chunked run's, of any version.
func IsChunked(e checkpoint.Entry) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(e.Data, &head) == nil && head.Kind == kind
}

// sound reports whether the parts of a state that was read fit each other.
func (s *Record) sound() bool {
	at := int64(0)
	for _, r := range s.Ranges {
		if r.From != at || r.To <= r.From {
			return false
		}
		at = r.To
	}
	f := s.InFlight
	return s.Version == version && s.Key != "" && s.N > 0 && s.Done == at &&
		(f == nil || contract.RequestIDPattern.MatchString(f.RequestID) && f.Lo >= 0 && f.Hi > f.Lo && f.Offset >= 0)
}

// Remaining is how many iterations are left.
func (s *Record) Remaining() int64 { return max(0, s.N-s.Done) }

// confirm takes over how far the kernel says it is. What a kernel has not done
// its variables don't hold: the record goes back to it.
func (s *Record) confirm(done int64, kernelID, instanceID string) {
	if s.Kept != nil && s.Kept.Done > done {
		s.Kept = nil // those iterations run again, and may give something else
	}
	last := len(s.Ranges) - 1
	for last >= 0 && s.Ranges[last].From >= done {
		last--
	}
	s.Ranges = s.Ranges[:last+1]
	for i := len(s.Results) - 1; i >= 0 && s.Results[i].Iteration >= done; i-- {
		s.ResultBytes -= len(s.Results[i].Value) + perResult
		s.Results = s.Results[:i]
	}
	switch {
	case done < s.Done:
		if last >= 0 {
			s.Ranges[last].To = min(s.Ranges[last].To, done)
		}
	case done > s.Done && last >= 0 && s.Ranges[last].KernelID == kernelID:
		s.Ranges[last].To = done
	case done > s.Done:
		s.Ranges = append(s.Ranges, Range{s.Done, done, kernelID, instanceID})
	}
	s.Done = done
	if len(s.Ranges) > maxRanges {
		s.Ranges[1].From, s.Ranges[1].KernelID, s.Ranges[1].InstanceID = s.Ranges[0].From, "several", "several"
		s.Ranges = append(s.Ranges[:0], s.Ranges[1:]...)
	}
}

// took notes how long a marker's iterations took.
func (s *Record) took(m marker) {
	s.Timed += m.Count
	s.MeanSeconds += (m.Seconds - s.MeanSeconds*float64(m.Count)) / float64(s.Timed)
	s.SlowestSeconds = max(s.SlowestSeconds, m.Slowest)
}

// outlasted notes that an iteration, or the set-up, was cut off by its deadline
// after so long: it takes that at least, and the next try gets more time.
func (s *Record) outlasted(seconds float64, setup bool) {
	if setup {
		s.SetupSeconds = max(s.SetupSeconds, seconds)
		return
	}
	s.SlowestSeconds = max(s.SlowestSeconds, seconds)
}

// keep adds a value, while there is room.
func (s *Record) keep(v Value) {
	size := len(v.Value) + perResult
	if s.ResultBytes+size > maxResultBytes {
		s.ResultsDropped++
		return
	}
	s.ResultBytes += size
	s.Results = append(s.Results, v)
}

// printed keeps the end of what was printed.
func (s *Record) printed(text string) {
	s.Output += text
	if over := len(s.Output) - maxOutput; over > 0 {
		for over < len(s.Output) && !utf8.RuneStart(s.Output[over]) {
			over++
		}
		s.Output = s.Output[over:]
	}
}

// finish ends the run. What was done past N, before N was made smaller, does not
// count any more.
func (s *Record) finish() {
	if s.Done > s.N {
		s.confirm(s.N, s.KernelID, s.InstanceID)
	}
	now := time.Now().UTC()
	s.Status, s.Failure, s.FinishedAt = StatusFinished, nil, &now
}
