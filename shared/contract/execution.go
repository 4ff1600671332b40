package contract

import (
	"encoding/json"
	"regexp"
	"time"
)

// Status is where an execution stands.
type Status string

// Statuses of an execution.
const (
	StatusQueued          Status = "queued"
	StatusRunning         Status = "running"
	StatusWaitingForInput Status = "waiting_for_input"
	StatusSucceeded       Status = "succeeded"
	StatusFailed          Status = "failed"      // Python raised
	StatusTimedOut        Status = "timed_out"   // its deadline passed
	StatusInterrupted     Status = "interrupted" // someone asked for it
	StatusCancelled       Status = "cancelled"   // before it started
	StatusKernelDied      Status = "kernel_died"
	StatusKernelRestarted Status = "kernel_restarted" // someone asked for a new kernel while it ran
	StatusLost            Status = "lost"             // the executor itself was killed while it ran
)

// Finished reports whether no more will happen to an execution of this status.
func (s Status) Finished() bool {
	switch s {
	case StatusQueued, StatusRunning, StatusWaitingForInput:
		return false
	}
	return true
}

// OK reports whether nothing went wrong so far: succeeded, or still under way.
func (s Status) OK() bool { return s == StatusSucceeded || !s.Finished() }

// RequestIDPattern is the form of Submit.RequestID.
var RequestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// Submit is the body of POST PathExecutions.
type Submit struct {
	// RequestID makes the submit idempotent: the same one gives the same execution.
	RequestID      string  `json:"request_id"`
	Code           string  `json:"code"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"` // from start to interrupt; 0 means DefaultTimeout, at most MaxTimeout
	WaitSeconds    float64 `json:"wait_seconds,omitempty"`    // at most MaxWait
	// OutputAfterSeconds, when set, lets output end the wait too, but not before that
	// time: a quick run stays one request, a silent one too, and of one that prints
	// the caller hears. Without it only the end and a request for input do.
	OutputAfterSeconds float64 `json:"output_after_seconds,omitempty"`
	// Unstored leaves no trace in In, Out, history and execution count (Jupyter's
	// store_history false): for code of the relay's own. It must end with a statement or
	// with None: the value of a last expression is kept in _ and Out all the same.
	Unstored bool `json:"unstored,omitempty"`
}

// Execution is one execute_request and all it produced.
type Execution struct {
	ExecutionID       string          `json:"execution_id"`
	RequestID         string          `json:"request_id"`
	Status            Status          `json:"status"`
	QueuePosition     int             `json:"queue_position"`  // executions before this one; 0 when it runs or is done
	ExecutionCount    int             `json:"execution_count"` // the kernel's In[n]; 0 when it has none
	KernelID          string          `json:"kernel_id"`       // the life it ran in; empty while queued
	CreatedAt         time.Time       `json:"created_at"`
	StartedAt         *time.Time      `json:"started_at"`
	FinishedAt        *time.Time      `json:"finished_at"`
	TimeoutSeconds    float64         `json:"timeout_seconds"`
	MemoryBeforeBytes uint64          `json:"memory_before_bytes"` // memory in use on the machine when it started
	MemoryAfterBytes  uint64          `json:"memory_after_bytes"`
	Error             *ExecutionError `json:"error"`  // what Python raised
	Reason            string          `json:"reason"` // why it ended as it did, in plain words; may advise
	CodePreview       string          `json:"code_preview"`
	Events            []Event         `json:"events"` // from the offset asked for
	NextOffset        int64           `json:"next_offset"`
	End               bool            `json:"end"` // finished and nothing left past NextOffset
	// SessionMinutesLeft estimates how long the VM still lives, from the platform's
	// published limit; 0 when the executor is ending, null where nothing is known.
	SessionMinutesLeft *float64 `json:"session_minutes_left,omitempty"`
}

// ExecutionError is what Python raised. Traceback may hold ANSI colour codes.
type ExecutionError struct {
	EName     string   `json:"ename"`
	EValue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// ExecutionList is the answer of GET PathExecutions: newest first, without events.
type ExecutionList struct {
	Executions []Execution `json:"executions"`
}

// Input is the body of POST PathInput.
type Input struct {
	Text string `json:"text"`
}

// EventType is the kind of an event: Jupyter's message types, and gap.
type EventType string

// Event types.
const (
	EventStream            EventType = "stream"
	EventDisplayData       EventType = "display_data"
	EventUpdateDisplayData EventType = "update_display_data"
	EventExecuteResult     EventType = "execute_result"
	EventError             EventType = "error"
	EventClearOutput       EventType = "clear_output"
	EventInputRequest      EventType = "input_request"
	EventGap               EventType = "gap" // what stood here was dropped by a bound
)

// Names of streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Event is one entry of an execution's log. Which fields are set depends on Type.
type Event struct {
	Offset int64     `json:"offset"` // counts events from 0; after a gap it goes on past what fell out
	Time   time.Time `json:"time"`
	Type   EventType `json:"type"`

	Name string `json:"name,omitempty"` // stream: stdout or stderr
	Text string `json:"text,omitempty"` // stream: at most MaxStreamEvent bytes

	// Data is a MIME bundle: each value is the payload, or a BlobRef in its place.
	Data           map[string]json.RawMessage `json:"data,omitempty"`
	Metadata       json.RawMessage            `json:"metadata,omitempty"`
	DisplayID      string                     `json:"display_id,omitempty"`
	ExecutionCount int                        `json:"execution_count,omitempty"` // execute_result

	EName     string   `json:"ename,omitempty"` // error, as in ExecutionError
	EValue    string   `json:"evalue,omitempty"`
	Traceback []string `json:"traceback,omitempty"`

	Prompt   string `json:"prompt,omitempty"` // input_request
	Password bool   `json:"password,omitempty"`

	Wait bool `json:"wait,omitempty"` // clear_output: clear when the next output comes

	// Cut says what was left out of the event to keep it within MaxEventBytes, in
	// words; empty when it is whole.
	Cut string `json:"cut,omitempty"`

	Bytes  int64 `json:"bytes,omitempty"`  // gap: how much fell out
	Events int64 `json:"events,omitempty"` // gap: offsets it stands for, beginning at Offset
}

// OwnMIME begins the MIME types of displays that the relay's own code in the kernel
// speaks to it by. They are not for readers.
const OwnMIME = "application/vnd.colab-relay."

// BlobRef stands for a MIME payload over InlineMIMEBytes.
type BlobRef struct {
	Blob Blob `json:"blob"`
}

// Blob names bytes served at PathBlob: the payload's decoded form (base64 of
// binary MIME types undone, JSON strings unquoted).
type Blob struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}
