package contract

import (
	"encoding/json"
	"time"

	"colabrelay/shared/lazy"
)

// Status is the state of an execution.
type Status string

// Statuses of an execution.
const (
	StatusQueued          Status = "queued"
	StatusRunning         Status = "running"
	StatusWaitingForInput Status = "waiting_for_input"
	StatusSucceeded       Status = "succeeded"
	StatusFailed          Status = "failed"      // Python raised an exception
	StatusTimedOut        Status = "timed_out"   // its deadline passed
	StatusInterrupted     Status = "interrupted" // on request
	StatusCancelled       Status = "cancelled"   // before it started
	StatusKernelDied      Status = "kernel_died"
	StatusKernelRestarted Status = "kernel_restarted" // the kernel was restarted on request while it ran
	StatusLost            Status = "lost"             // the executor itself was killed while it ran
)

// Finished reports whether the status is final.
func (s Status) Finished() bool {
	switch s {
	case StatusQueued, StatusRunning, StatusWaitingForInput:
		return false
	}
	return true
}

// OK reports whether nothing has gone wrong so far: the status is succeeded or not final.
func (s Status) OK() bool { return s == StatusSucceeded || !s.Finished() }

// RequestIDPattern is the form of Submit.RequestID.
var RequestIDPattern = lazy.Regexp(`^[A-Za-z0-9._-]{1,128}$`)

// SHA256Pattern is the form of every SHA-256 in the contract.
var SHA256Pattern = lazy.Regexp(`^[0-9a-f]{64}$`)

// Submit is the body of POST PathExecutions.
type Submit struct {
	// RequestID makes submitting idempotent: the same one returns the same execution. Another
	// Code or Unstored under the same one is a conflict.
	RequestID string `json:"request_id"`
	Code      string `json:"code"`
	// Source is the code as a person wrote it, if Code wraps it, with its name, such as the
	// file's. The relay keeps them for its own lists; they are not sent. The name of a job's step
	// is: see JobStep.SourceName.
	Source         string  `json:"-"`
	SourceName     string  `json:"-"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"` // from start to interrupt; 0 means DefaultTimeout, at most MaxTimeout
	WaitSeconds    float64 `json:"wait_seconds,omitempty"`    // at most MaxWait
	// OutputAfterSeconds, if set, is the time after which output ends the wait too. So a
	// quick or silent run takes one request, and the caller sees the output of a longer
	// one. Otherwise only the end and a request for input end the wait.
	OutputAfterSeconds float64 `json:"output_after_seconds,omitempty"`
	// Unstored runs code of the relay itself without a trace in In, Out, history and
	// execution count (Jupyter's store_history false). The code must end with a statement
	// or None, because IPython stores the value of a last expression in _ and Out anyway.
	Unstored bool `json:"unstored,omitempty"`
	// BehindInput ends the wait as soon as the execution is queued behind one that waits for
	// input: only somebody's answer can end that. QueryBehindInput is the same for a read.
	BehindInput bool `json:"behind_input,omitempty"`
	// Job is set by the executor for the executions of jobs.
	Job *JobRef `json:"-"`
}

// QueryBehindInput is the query parameter of GET PathExecution that does what
// Submit.BehindInput does. Its value is true or false.
const QueryBehindInput = "behind_input"

// Execution is one execute_request and everything that it produced.
type Execution struct {
	ExecutionID       string          `json:"execution_id"`
	RequestID         string          `json:"request_id"`
	Job               *JobRef         `json:"job,omitempty"` // that it belongs to; nil if it was submitted by itself
	Status            Status          `json:"status"`
	QueuePosition     int             `json:"queue_position"`   // number of executions before this one; 0 if it is running or finished
	Behind            *Behind         `json:"behind,omitempty"` // only while it is queued behind another execution
	ExecutionCount    int             `json:"execution_count"`  // the kernel's In[n]; 0 if it has none
	KernelID          string          `json:"kernel_id"`        // the kernel that ran it; empty while queued
	CreatedAt         time.Time       `json:"created_at"`
	StartedAt         *time.Time      `json:"started_at"`
	FinishedAt        *time.Time      `json:"finished_at"`
	TimeoutSeconds    float64         `json:"timeout_seconds"`
	MemoryBeforeBytes uint64          `json:"memory_before_bytes"` // memory in use on the machine when it started
	MemoryAfterBytes  uint64          `json:"memory_after_bytes"`
	Error             *ExecutionError `json:"error"`  // the exception that Python raised
	Reason            string          `json:"reason"` // why it ended, for people; may contain advice
	CodePreview       string          `json:"code_preview"`
	SourceName        string          `json:"source_name,omitempty"` // of a job's step, such as its notebook and cell
	Events            []Event         `json:"events"`                // from the requested offset
	NextOffset        int64           `json:"next_offset"`
	End               bool            `json:"end"` // finished, with no events from NextOffset on
	// SessionMinutesLeft estimates the rest of the VM's session from the platform's
	// published limit. It is 0 while the executor shuts down and null if no limit is known.
	SessionMinutesLeft *float64 `json:"session_minutes_left,omitempty"`
}

// Behind is the execution that occupies the kernel while another one is queued, or while
// another request needs an idle kernel.
type Behind struct {
	ExecutionID string `json:"execution_id"`
	Status      Status `json:"status"`             // a final one if its code has ignored the interrupt and still runs
	Prompt      string `json:"prompt,omitempty"`   // what it asks while it waits for input, at most MaxBehindPrompt bytes
	Password    bool   `json:"password,omitempty"` // it asks for a password
}

// ExecutionError is the exception that Python raised. Traceback may contain ANSI colour
// codes.
type ExecutionError struct {
	EName     string   `json:"ename"`
	EValue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// ExecutionList is the answer of GET PathExecutions: newest first, without events.
type ExecutionList struct {
	Executions []Execution `json:"executions"`
}

// Input is the body of POST PathInput. The executor gives Text to the code if it waits at the
// prompt that the body means, and refuses it otherwise: with conflict at any other prompt or
// none, with password_prompt at a prompt for a password that the sender did not expect.
type Input struct {
	Text string `json:"text"` // the line, without the line break
	// Offset is that of the input_request event that Text answers; nil means whichever prompt
	// is open. With it, a body that arrives late or twice answers no other prompt.
	Offset *int64 `json:"offset,omitempty"`
	// InputID, at most 64 bytes, is the same in each attempt to send one text. An attempt with the id
	// of the last text that was accepted is accepted again, without effect.
	InputID string `json:"input_id,omitempty"`
	// Password says that the sender knows that the prompt asks for a password, and has not
	// shown Text to anyone.
	Password bool `json:"password,omitempty"`
}

// EventType is the kind of an event: Jupyter's message types, and three of the executor's.
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
	EventGap               EventType = "gap" // the events here were dropped because of a limit
	// EventWidgetView is the present text of the displays with this id, which show a widget: Data has
	// text/plain alone. EventWidgetState has the last states of widgets that are displayed, in the
	// form of package widgets' Document. Both come after the displays, at the latest at the run's end.
	EventWidgetView  EventType = "widget_view"
	EventWidgetState EventType = "widget_state"
)

// Names of streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Event is one entry of an execution's log. Type determines which fields are set.
type Event struct {
	Offset int64     `json:"offset"` // counts events from 0, including those that a gap stands for
	Time   time.Time `json:"time"`
	Type   EventType `json:"type"`

	Name string `json:"name,omitempty"` // stream: stdout or stderr
	Text string `json:"text,omitempty"` // stream: at most MaxStreamEvent bytes

	// Data is a MIME bundle: each value is the payload, or a BlobRef instead of it.
	Data           map[string]json.RawMessage `json:"data,omitempty"`
	Metadata       json.RawMessage            `json:"metadata,omitempty"`
	DisplayID      string                     `json:"display_id,omitempty"`
	ExecutionCount int                        `json:"execution_count,omitempty"` // execute_result

	// Error, as in ExecutionError. If it is shortened, Data has all of it as text/plain.
	EName     string   `json:"ename,omitempty"`
	EValue    string   `json:"evalue,omitempty"`
	Traceback []string `json:"traceback,omitempty"`

	Prompt   string `json:"prompt,omitempty"` // input_request
	Password bool   `json:"password,omitempty"`

	Wait bool `json:"wait,omitempty"` // clear_output: clear when the next output arrives

	// Cut describes, for people, what was omitted from the event to keep it within
	// MaxEventBytes. It is empty if the event is complete.
	Cut string `json:"cut,omitempty"`

	Bytes  int64 `json:"bytes,omitempty"`  // gap: bytes that were dropped
	Events int64 `json:"events,omitempty"` // gap: number of offsets that it stands for, starting at Offset
}

// OwnMIME is the prefix of the MIME types of displays by which the relay's own code in the
// kernel reports to the relay. They are not shown to readers.
const OwnMIME = "application/vnd.colab-relay."

// BlobRef stands for a MIME payload over InlineMIMEBytes.
type BlobRef struct {
	Blob Blob `json:"blob"`
}

// Blob identifies bytes served at PathBlob: the decoded payload, which is binary for binary
// MIME types and unquoted text for JSON strings.
type Blob struct {
	Number int    `json:"number"` // in the path: 1 for the execution's first blob, at most MaxBlobs
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}
