package jupyter

import (
	"cmp"
	"encoding/json"
)

// Types of messages (Jupyter message protocol 5.3). Other types can be sent and received too.
const (
	MsgExecuteRequest    = "execute_request"
	MsgExecuteReply      = "execute_reply"
	MsgExecuteInput      = "execute_input"
	MsgExecuteResult     = "execute_result"
	MsgStream            = "stream"
	MsgDisplayData       = "display_data"
	MsgUpdateDisplayData = "update_display_data"
	MsgClearOutput       = "clear_output"
	MsgError             = "error"
	MsgStatus            = "status"
	MsgInputRequest      = "input_request"
	MsgInputReply        = "input_reply"
	MsgKernelInfoRequest = "kernel_info_request"
	MsgKernelInfoReply   = "kernel_info_reply"
	MsgShutdownRequest   = "shutdown_request"
	MsgComm              = "comm_msg"
)

const (
	// maxMIMETypes bounds the types that are decoded of one display: a map of millions
	// of empty payloads would take gigabytes.
	maxMIMETypes = 1000
)

// ExecuteRequest is the content of execute_request.
type ExecuteRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions"`
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

// MarshalJSON writes an empty object if there are no user expressions: IPython iterates
// over them, and null would end the request with a traceback.
func (r ExecuteRequest) MarshalJSON() ([]byte, error) {
	type plain ExecuteRequest
	if r.UserExpressions == nil {
		r.UserExpressions = map[string]string{}
	}
	return json.Marshal(plain(r))
}

// ExecuteReply is the content of execute_reply.
type ExecuteReply struct {
	Status          string      `json:"status"` // "ok", "error" or "aborted"
	ExecutionCount  int         `json:"execution_count"`
	EName           string      `json:"ename"`
	EValue          string      `json:"evalue"`
	Traceback       Traceback   `json:"traceback"`
	UserExpressions Expressions `json:"user_expressions"`
	Payload         Payloads    `json:"payload"`
}

// ErrorContent is the content of error.
type ErrorContent struct {
	EName     string    `json:"ename"`
	EValue    string    `json:"evalue"`
	Traceback Traceback `json:"traceback"`
}

// ClearOutput is the content of clear_output.
type ClearOutput struct {
	Wait bool `json:"wait"`
}

// Status is the content of status.
type Status struct {
	ExecutionState string `json:"execution_state"` // "starting", "busy" or "idle"
}

// InputRequest is the content of input_request.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// InputReply is the content of input_reply. Value is a text for input().
type InputReply struct {
	Value any `json:"value"`
}

// ShutdownRequest is the content of shutdown_request.
type ShutdownRequest struct {
	Restart bool `json:"restart"`
}

// Stream is the content of stream. Text is a JSON string, part of the Message's frame;
// the function Text decodes it.
type Stream struct {
	Name string // "stdout" or "stderr"
	Text json.RawMessage
}

// UnmarshalJSON copies nothing: s is valid as long as raw.
func (s *Stream) UnmarshalJSON(raw []byte) error {
	*s = Stream{}
	var failed error
	err := fields(raw, func(key string, value json.RawMessage) {
		switch key {
		case "name":
			failed = json.Unmarshal(value, &s.Name)
		case "text":
			s.Text = value
		}
	})
	return cmp.Or(err, failed)
}

// DisplayData is the content of display_data, update_display_data and
// execute_result. Data and Metadata are parts of the Message's frame.
type DisplayData struct {
	Data           map[string]json.RawMessage // by MIME type, the first maxMIMETypes
	OmittedTypes   int                        // that are not in Data
	OmittedBytes   int64                      // names and payloads of those
	Metadata       json.RawMessage
	Transient      Transient
	ExecutionCount int // execute_result only
}

// Transient is the part of a display_data message that is not to be stored.
type Transient struct {
	DisplayID string `json:"display_id"`
}

// UnmarshalJSON copies no payload: d is valid as long as raw.
func (d *DisplayData) UnmarshalJSON(raw []byte) error {
	*d = DisplayData{Data: map[string]json.RawMessage{}}
	var failed error
	keep := func(err error) { failed = cmp.Or(failed, err) }
	err := fields(raw, func(key string, value json.RawMessage) {
		switch key {
		case "data":
			keep(fields(value, d.add))
		case "metadata":
			d.Metadata = value
		case "transient":
			keep(json.Unmarshal(value, &d.Transient))
		case "execution_count":
			keep(json.Unmarshal(value, &d.ExecutionCount))
		}
	})
	return cmp.Or(err, failed)
}

// add adds a payload, or counts it if there are too many.
func (d *DisplayData) add(mime string, payload json.RawMessage) {
	if len(d.Data) >= maxMIMETypes {
		d.OmittedTypes++
		d.OmittedBytes += int64(len(mime) + len(payload))
		return
	}
	d.Data[mime] = payload
}
