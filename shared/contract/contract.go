// Package contract defines protocol 5 between relay and executor: paths, headers, bodies,
// event types, statuses, error codes and limits.
//
// It contains only behaviour that must be identical on both sides, and imports nothing of
// the project. Start reading at the Path constants, then at Execution.
//
// JSON is UTF-8, times are RFC 3339 in UTC, and sizes are bytes unless a field's name has
// another unit.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/shared/lazy"
)

// Protocol is the version of the protocol that this build supports. It is part of the key
// schedule of shared/auth, so that programs of two versions understand nothing of each other: a
// field that one of them does not know would be ignored. The relay then says which one is older.
const Protocol = 5

// Routes. A tunnel's operator can read a path, so an {id} is random and a {number} only
// counts. Anything that depends on content, or that a user typed, is in the query or the body.
const (
	PathHealth        = "/health"
	PathProbe         = "/v1/probe"
	PathExecutions    = "/v1/executions"
	PathExecution     = "/v1/executions/{id}"
	PathInterrupt     = "/v1/executions/{id}/interrupt"
	PathInput         = "/v1/executions/{id}/input"
	PathBlob          = "/v1/executions/{id}/blobs/{number}"
	PathJobs          = "/v1/jobs"
	PathJob           = "/v1/jobs/{id}"
	PathKernel        = "/v1/kernel"
	PathKernelRestart = "/v1/kernel/restart"
	PathVariables     = "/v1/variables"
	PathInspect       = "/v1/variables/inspect"
	PathCleanup       = "/v1/cleanup"
	PathFiles         = "/v1/files"
	PathStat          = "/v1/files/stat"
	PathContent       = "/v1/files/content"
	PathCompare       = "/v1/files/compare"
	PathContents      = "/v1/files/contents"
	PathUploads       = "/v1/uploads"
	PathUpload        = "/v1/uploads/{id}"
	PathUploadBatch   = "/v1/batches"
)

// The contract's own headers. shared/auth has those of RFC 9421 and Content-Encoding.
const (
	// HeaderInstance is an Instance: in a signed answer the executor that sent it, in a
	// request other than GET the executor that it is intended for.
	HeaderInstance = "Executor-Instance"
	// HeaderRequestID identifies one HTTP request in logs and error bodies.
	HeaderRequestID = "X-Request-Id"
	// HeaderSkipInterstitial makes ngrok's free endpoints skip their warning page.
	HeaderSkipInterstitial = "Ngrok-Skip-Browser-Warning"
)

// Limits that both sides use. The executor enforces them.
const (
	MaxHeaderBytes    = 16 << 10
	MaxBodyBytes      = 8 << 20
	MaxBlobPart       = 8 << 20 // bytes of one blob answer
	MaxStreamEvent    = 16 << 10
	MaxErrorEvent     = 64 << 10
	MaxEventBytes     = 1 << 20  // one event as JSON
	InlineMIMEBytes   = 64 << 10 // a larger payload becomes a blob
	MaxBlobs          = 10_000   // of one execution; its bound in bytes allows half as many of InlineMIMEBytes
	MaxReadBytes      = 4 << 20  // events in one answer
	DefaultReadBytes  = 1 << 20
	MaxWait           = 50 * time.Second
	DefaultTimeout    = 10 * time.Minute
	MaxTimeout        = 24 * time.Hour
	MaxInputWait      = time.Hour
	MaxListExecutions = 1000
	MaxRequestIDLen   = 128
	CodePreviewRunes  = 120
	MaxBehindPrompt   = 1000 // bytes
	ClockSkew         = 300 * time.Second
)

// Health is the answer of PathHealth, the only one that is neither signed nor sealed.
type Health struct {
	Status            string  `json:"status"`
	UptimeMinutes     float64 `json:"uptime_minutes"`
	MemoryAvailableGB float64 `json:"memory_available_gb"`
	MemoryUsedPct     float64 `json:"memory_used_pct"`
	Version           string  `json:"version"`
	Protocol          int     `json:"protocol"`
}

// Kernel is the answer of PathKernel and PathKernelRestart.
type Kernel struct {
	Status         KernelStatus `json:"status"`
	KernelID       string       `json:"kernel_id"` // a new one for each kernel process; empty before the first
	PID            int          `json:"pid"`
	Python         string       `json:"python"`    // version, from kernel_info
	IPyKernel      string       `json:"ipykernel"` // version
	StartedAt      *time.Time   `json:"started_at"`
	KernelsStarted int          `json:"lives"`  // kernels started so far by this executor
	Reason         string       `json:"reason"` // why the last kernel ended; empty if none has ended
}

// KernelRef is the body of POST PathKernelRestart and PathCleanup. It names the intended
// kernel, so that a request that arrives late or twice does not end a later kernel or
// delete its variables.
//
// A restart of a kernel that is not the current one does nothing. It answers with the
// current kernel, because the intended one has been replaced. So restarts may be repeated,
// and several concurrent restarts of one kernel restart it once. A cleanup of such a kernel
// is refused as a conflict.
type KernelRef struct {
	// KernelID is that of Kernel. Empty means that there was no kernel: it was starting, or
	// had died too often and was not started again.
	KernelID string `json:"kernel_id"`
}

// KernelStatus is what the kernel is doing.
type KernelStatus string

// Kernel statuses. starting, idle, busy and dead are Jupyter's words.
const (
	KernelStarting KernelStatus = "starting"
	KernelIdle     KernelStatus = "idle"
	KernelBusy     KernelStatus = "busy"
	KernelDead     KernelStatus = "dead" // died too often in a row, without a run that succeeded; it is not started again
)

// Code is the kind of an error, for programs.
type Code string

// Error codes.
const (
	CodeUnauthorized   Code = "unauthorized"
	CodeClockSkew      Code = "clock_skew"
	CodeReplayed       Code = "replayed"
	CodeBadRequest     Code = "bad_request"
	CodeNotFound       Code = "not_found"
	CodeConflict       Code = "conflict"
	CodeTooLarge       Code = "too_large"
	CodeRateLimited    Code = "rate_limited"
	CodeQueueFull      Code = "queue_full"
	CodeKernelDead     Code = "kernel_dead"
	CodeKernelStarting Code = "kernel_starting"
	CodeLowMemory      Code = "low_memory"
	CodeForbiddenPath  Code = "forbidden_path"
	CodeChanged        Code = "changed"
	CodeKernelBusy     Code = "kernel_busy"
	CodeNewInstance    Code = "new_instance" // the request is intended for another executor
	CodeNewStart       Code = "new_start"    // the executor was restarted: the request must be signed again
	CodeDiskFull       Code = "disk_full"
	CodePasswordPrompt Code = "password_prompt" // the code asks for a password, and the sender did not say that it is one
	CodeShuttingDown   Code = "shutting_down"
	CodeNotSupported   Code = "not_supported"
	CodeInternal       Code = "internal"
)

// Codes lists all codes, for tables that must cover each of them.
var Codes = []Code{
	CodeUnauthorized, CodeClockSkew, CodeReplayed, CodeBadRequest, CodeNotFound,
	CodeConflict, CodeTooLarge, CodeRateLimited, CodeQueueFull, CodeKernelDead,
	CodeKernelStarting, CodeLowMemory, CodeForbiddenPath, CodeChanged,
	CodeKernelBusy, CodeNewInstance, CodeNewStart, CodeDiskFull, CodeShuttingDown,
	CodeNotSupported, CodePasswordPrompt, CodeInternal,
}

// Error is the answer to a failed request, inside ErrorBody.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`   // what happened
	Hint      string `json:"hint"`      // what to do next
	Retryable bool   `json:"retryable"` // the same request may succeed later
	RequestID string `json:"request_id"`
	// ServerTime is the executor's time in Unix seconds. It is set for clock_skew, and for a
	// rate_limited that replaces any refusal of an unverified request: clock_skew,
	// new_instance, new_start, or replayed.
	ServerTime int64 `json:"server_time,omitempty"`
	// Behind is the execution that has the kernel; only for kernel_busy.
	Behind *Behind `json:"behind,omitempty"`
}

// Error is the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// CodeOf returns the code of an executor's refusal that err is or wraps; empty for any other error.
func CodeOf(err error) Code {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Code
	}
	return ""
}

// ErrorBody is the JSON body of a failed request.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Instance identifies one executor process. It is the value of HeaderInstance: in a signed
// answer the executor that sent it, in a request other than GET the executor that it is
// intended for. It is signed, so that a captured request is not valid for another executor
// or after a restart.
type Instance struct {
	ID    string // instance_id: created with the state dir, so each VM has its own
	Start string // random, created by each executor process
}

// MaxInstancePart is how many bytes each of the two parts may have. The programs' ids have
// 36 and 26.
const MaxInstancePart = 64

// String is the header's value.
func (i Instance) String() string { return i.ID + "/" + i.Start }

// IsZero reports whether i is the zero Instance.
func (i Instance) IsZero() bool { return i == Instance{} }

// ParseInstance reads the header's value: two parts of 1 to MaxInstancePart characters
// of A-Z a-z 0-9 . _ - with a slash between them. The error does not quote text, which may
// come from anybody.
func ParseInstance(text string) (Instance, error) {
	if !instancePattern().MatchString(text) {
		return Instance{}, fmt.Errorf("%s is not of the form <instance id>/<start id>", HeaderInstance)
	}
	id, start, _ := strings.Cut(text, "/")
	return Instance{ID: id, Start: start}, nil
}

var instancePattern = lazy.Regexp(`^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,64}$`)

// EscapeName escapes a file name, or a path with slashes, so that JSON can represent it and
// different names stay different. A byte that is not UTF-8 becomes \xNN in lower-case hex,
// and a backslash that would start such a sequence becomes \x5c. Other names are unchanged.
// All paths on the wire are escaped in this way.
func EscapeName(name string) string {
	return EscapeNameAlso(name, func(int) bool { return false })
}

// EscapeNameAlso is EscapeName that also writes each byte of some characters as \xNN: of those
// for whose offset in the name also returns true. They must be spaces, control characters but
// NUL, or not ASCII.
func EscapeNameAlso(name string, also func(at int) bool) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		_, escape := escapedByte(name[i:])
		if also(i) || escape || r == utf8.RuneError && n == 1 {
			for _, c := range []byte(name[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}

// UnescapeName reverses EscapeName and EscapeNameAlso. Sequences that neither of them writes,
// such as \x41 or \xFF, are unchanged, so unescaping never produces a slash, a NUL or a dot.
func UnescapeName(name string) string {
	if !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		c, ok := escapedByte(name)
		if ok {
			name = name[len(`\xNN`):]
		} else {
			c, name = name[0], name[1:]
		}
		b.WriteByte(c)
	}
	return b.String()
}

// escapedByte is the byte that name starts with, if it is escaped: a backslash, a space, a
// control character, or a byte of a character that is not ASCII.
func escapedByte(name string) (byte, bool) {
	if len(name) < len(`\xNN`) || name[:2] != `\x` {
		return 0, false
	}
	high, low := hexDigit(name[2]), hexDigit(name[3])
	if high < 0 || low < 0 {
		return 0, false
	}
	c := byte(high<<4 | low)
	return c, c == '\\' || c > 0 && c <= ' ' || c >= 0x7f
}

// hexDigit is the value of a lower-case hex digit, -1 for any other byte.
func hexDigit(c byte) int {
	return strings.IndexByte("0123456789abcdef", c)
}

// Names in the VM's temp folder that both the executor and the relay's Python in the kernel
// use. The executor deletes files with these names that a killed kernel has left.
const (
	// EnvOwner is an environment variable of the kernel. Its value, after the prefix, is in
	// the names of its executor's folders, and differs between executors on one machine.
	EnvOwner = "COLAB_RELAY_OWNER"
	// EnvTemp is an environment variable of the kernel. Its value is the executor's temp
	// folder, from which it serves files. Code in the kernel may have set TMPDIR to another.
	EnvTemp = "COLAB_RELAY_TEMP"
	// MemoryFolder is where such folders are if the temp folder's disk is full.
	MemoryFolder = "/dev/shm"
	// StateFolderPrefix is the prefix of the folders that contain a kernel state.
	StateFolderPrefix = "colab-relay-state-"
	// StateUnfinished is the file in such a folder that a save is writing. When it is
	// complete, it is renamed, and the relay fetches it.
	StateUnfinished = "data.unfinished"
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

// OfRelay reports whether an event is a report of the relay's own code in the kernel.
func (e *Event) OfRelay() bool {
	for mime := range e.Data {
		if strings.HasPrefix(mime, OwnMIME) {
			return true
		}
	}
	return false
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

// Range is a range of bytes of a file.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// End is the offset after the last byte of r.
func (r Range) End() int64 { return r.Offset + r.Length }

// After is r without its first n bytes.
func (r Range) After(n int64) Range { return Range{Offset: r.Offset + n, Length: r.Length - n} }
