package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"colabrelay/shared/contract"
)

// Bounds of the fields that outsiders choose, in bytes. A longer one is cut.
const (
	maxMethod = 16
	maxPath   = 256
	maxField  = 128
	maxCode   = 64 << 10
)

// event is what a line tells.
type event string

const (
	eventStarted   event = "executor_started"
	eventStopped   event = "executor_stopped"
	eventRequest   event = "request"
	eventSubmitted event = "execution_submitted"
	eventEnded     event = "execution_ended"
	eventOmitted   event = "records_omitted"
)

// Source is where a request came from.
type Source struct {
	RequestID string `json:"request_id,omitempty"` // also in the executor's log and in error answers
	Caller    string `json:"caller,omitempty"`     // the relay process, as far as it tells the truth
	Address   string `json:"address,omitempty"`    // as the tunnel reported it, else of the connection
}

// Request is a request with a correct signature, and its answer.
type Request struct {
	Source
	Method      string        `json:"method,omitempty"`
	Path        string        `json:"path,omitempty"`   // without the query
	Status      int           `json:"status,omitempty"` // of HTTP
	Error       contract.Code `json:"error,omitempty"`
	Received    int64         `json:"bytes_received,omitempty"` // of the sealed body
	Sent        int64         `json:"bytes_sent,omitempty"`     // of the sealed answer
	DurationMS  *int64        `json:"duration_ms,omitempty"`
	ExecutionID string        `json:"execution_id,omitempty"` // that a submit created or repeated
	// Admitted is false if the request was turned away: its time, executor or nonce was
	// wrong, it did not open, or it was over the rate limit.
	Admitted bool `json:"-"`
}

// record is one line. That of an execution has some of a request's fields, too.
type record struct {
	Time  time.Time `json:"time"`
	Event event     `json:"event"`
	KeyID string    `json:"key_id"`
	Request

	SubmitID   string          `json:"submit_id,omitempty"`
	KernelID   string          `json:"kernel_id,omitempty"`
	Outcome    contract.Status `json:"outcome,omitempty"`
	CodeSHA256 string          `json:"code_sha256,omitempty"`
	CodeBytes  int             `json:"code_bytes,omitempty"`
	Code       string          `json:"code,omitempty"`
	CodeCut    bool            `json:"code_cut,omitempty"` // Code is not all of it

	Version    string `json:"version,omitempty"`
	InstanceID string `json:"instance_id,omitempty"`
	PID        int    `json:"pid,omitempty"`
	// AfterUncleanEnd: the executor before did not record its end, because it was killed or the
	// disk was full. What it had not written yet is missing.
	AfterUncleanEnd bool `json:"after_unclean_end,omitempty"`

	Count int        `json:"count,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Cause string     `json:"cause,omitempty"`
}

// endOf is the record of an execution's end. Its duration counts from its start in the
// kernel; an execution that never started has none.
func endOf(x contract.Execution, from Source, codeSHA256 string) record {
	r := record{
		Event: eventEnded, Request: Request{Source: from, ExecutionID: x.ExecutionID},
		SubmitID: x.RequestID, KernelID: x.KernelID, Outcome: x.Status, CodeSHA256: codeSHA256,
	}
	if x.StartedAt != nil && x.FinishedAt != nil {
		r.DurationMS = new(x.FinishedAt.Sub(*x.StartedAt).Milliseconds())
	}
	return r
}

// line is the record as it is written: one line of ASCII, whatever its fields contain.
func (r record) line() []byte {
	r.Method, r.Path, r.Address = cut(r.Method, maxMethod), cut(r.Path, maxPath), cut(r.Address, maxField)
	for _, field := range []*string{&r.RequestID, &r.Caller, &r.ExecutionID, &r.SubmitID, &r.KernelID, &r.CodeSHA256, &r.Cause} {
		*field = cut(*field, maxField)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("audit: %v", err)) // no field can fail
	}
	return append(ascii(raw), '\n')
}

// cut returns the first n bytes of s at most, without half a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// ascii escapes what encoding/json leaves as it is: a terminal takes DEL and U+0080 to
// U+009F for commands, and other characters reverse or hide text.
func ascii(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+1)
	for _, r := range string(raw) {
		if r < 0x7f {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
