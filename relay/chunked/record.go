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

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
)

const (
	kind    = "chunked"
	version = 1
)

// Status is the status of a run.
type Status string

// Statuses of a run. A run that a batch stopped has the status of that batch.
const (
	StatusRunning  Status = "running"
	StatusFinished Status = "finished"
	// StatusVariablesLost: the kernel lacks the variables that iterations pass on.
	StatusVariablesLost Status = "variables_lost"
)

// Record is the content of a run's file.
type Record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Key     string `json:"key"` // names the run in the kernel
	Status  Status `json:"status"`
	Runtime string `json:"runtime"`

	N           int64   `json:"n_iterations"`
	SetupSHA256 string  `json:"setup_sha256"`
	LoopSHA256  string  `json:"loop_sha256"`
	Restarted   bool    `json:"restarted"` // the run was started by Restart
	Done        int64   `json:"completed"` // iterations 0 to Done-1 are done
	Ranges      []Range `json:"ranges"`

	InFlight   *Batch `json:"in_flight"`
	InstanceID string `json:"instance_id"` // of the last batch that was answered
	KernelID   string `json:"kernel_id"`

	Timed          int64   `json:"timed"` // how many iterations MeanSeconds covers
	MeanSeconds    float64 `json:"mean_seconds"`
	SlowestSeconds float64 `json:"slowest_seconds"`
	SetupSeconds   float64 `json:"setup_seconds"`

	Output         string   `json:"last_output"` // the end of the printed text, not cleaned
	Results        []Value  `json:"results"`
	ResultBytes    int      `json:"result_bytes"`
	ResultsDropped int64    `json:"results_dropped"` // because of maxResultBytes
	Failure        *Failure `json:"failure"`

	VariableRecord

	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// Range is the iterations From to To-1, which ran in one kernel.
type Range struct {
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	KernelID   string `json:"kernel_id"`
	InstanceID string `json:"instance_id"`
}

// Batch is a batch that was submitted and whose end has not been read.
type Batch struct {
	RequestID   string          `json:"request_id"`
	InstanceID  string          `json:"instance_id"`
	ExecutionID string          `json:"execution_id"` // empty until the submit was answered
	CodeSHA256  string          `json:"code_sha256"`
	Lo          int64           `json:"lo"`
	Hi          int64           `json:"hi"`
	Offset      int64           `json:"offset"` // the first event that was not read
	Policy      newKernelPolicy `json:"on_new"`
	Analyse     bool            `json:"analyse"`      // it reports the variables that iterations pass on
	WithPackage bool            `json:"with_package"` // its code includes the Python package
	Timeout     float64         `json:"timeout_seconds"`
	SubmittedAt time.Time       `json:"submitted_at"`
}

// Value is the value of result after one iteration.
type Value struct {
	Iteration int64           `json:"i"`
	Value     json.RawMessage `json:"value"`             // JSON; null if Omitted is set
	Omitted   string          `json:"omitted,omitempty"` // why there is no value
}

// Failure is why a run stopped.
type Failure struct {
	Status    string `json:"status"`
	Iteration *int64 `json:"iteration"` // null if no iteration raised: a failed setup, a syntax error
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

// Load reads the record of the run with that name. It returns checkpoint.ErrNotFound,
// ErrDamaged or ErrNotChunked.
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
	var r Record
	if json.Unmarshal(entry.Data, &r) != nil || !r.isConsistent() {
		return nil, fmt.Errorf("%q: %w", name, ErrDamaged)
	}
	r.compactResults()
	return &r, nil
}

// compactResults removes the white space that the file may have added to values and counts
// their bytes again.
func (r *Record) compactResults() {
	r.ResultBytes = 0
	for i, v := range r.Results {
		r.Results[i].Value = compact(v.Value)
		r.ResultBytes += r.Results[i].size()
	}
}

// compact removes white space from JSON. It returns other text unchanged.
func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return value
	}
	return b.Bytes()
}

// IsChunked reports whether a checkpoint belongs to a chunked run of any version.
func IsChunked(e checkpoint.Entry) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(e.Data, &head) == nil && head.Kind == kind
}

// isConsistent reports whether the parts of the record fit each other.
func (r *Record) isConsistent() bool {
	done := int64(0)
	for _, ran := range r.Ranges {
		if ran.From != done || ran.To <= ran.From {
			return false
		}
		done = ran.To
	}
	b := r.InFlight
	return r.Version == version && r.Key != "" && r.N > 0 && r.Done == done &&
		(b == nil || contract.RequestIDPattern.MatchString(b.RequestID) && b.Lo >= 0 && b.Hi > b.Lo && b.Offset >= 0)
}
