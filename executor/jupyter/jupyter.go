// Package jupyter speaks the Jupyter messaging protocol to one kernel, over an
// own ZMTP 3.0 client: shell, control, iopub, stdin and heartbeat, on TCP or ipc
// sockets. It is the only package that knows ZeroMQ.
//
// It does not start kernels and gives messages no meaning beyond their routing;
// contents stay raw JSON. Start reading at Dial, Client.Send and Client.Receive.
package jupyter

import "encoding/json"

// Channel is one of the kernel's sockets.
type Channel string

// The channels that carry messages. The heartbeat carries bare bytes.
const (
	Shell   Channel = "shell"
	Control Channel = "control"
	IOPub   Channel = "iopub"
	Stdin   Channel = "stdin"
)

// Message types of the protocol that this project sends or reads.
const (
	MsgExecuteRequest    = "execute_request"
	MsgExecuteReply      = "execute_reply"
	MsgExecuteInput      = "execute_input"
	MsgExecuteResult     = "execute_result"
	MsgKernelInfoRequest = "kernel_info_request"
	MsgKernelInfoReply   = "kernel_info_reply"
	MsgInterruptRequest  = "interrupt_request"
	MsgShutdownRequest   = "shutdown_request"
	MsgInputRequest      = "input_request"
	MsgInputReply        = "input_reply"
	MsgStatus            = "status"
	MsgStream            = "stream"
	MsgDisplayData       = "display_data"
	MsgUpdateDisplayData = "update_display_data"
	MsgClearOutput       = "clear_output"
	MsgError             = "error"
)

// ExecuteRequest is the content of an execute_request.
type ExecuteRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions"`
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

// ExecuteReply is the content of an execute_reply. Status is ok, error or aborted.
type ExecuteReply struct {
	Status          string                     `json:"status"`
	ExecutionCount  int                        `json:"execution_count"`
	EName           string                     `json:"ename"`
	EValue          string                     `json:"evalue"`
	Traceback       []string                   `json:"traceback"`
	UserExpressions map[string]json.RawMessage `json:"user_expressions"`
}

// KernelInfo is the content of a kernel_info_reply.
type KernelInfo struct {
	ProtocolVersion       string       `json:"protocol_version"`
	Implementation        string       `json:"implementation"`
	ImplementationVersion string       `json:"implementation_version"`
	LanguageInfo          LanguageInfo `json:"language_info"`
}

// LanguageInfo is what the kernel runs.
type LanguageInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Status is the content of a status message: busy, idle or starting.
type Status struct {
	ExecutionState string `json:"execution_state"`
}

// Stream is the content of a stream message. Text is a raw JSON string: see Text.
type Stream struct {
	Name string          `json:"name"`
	Text json.RawMessage `json:"text"`
}

// DisplayData is the content of display_data, update_display_data and
// execute_result.
type DisplayData struct {
	Data      map[string]json.RawMessage `json:"data"`
	Metadata  json.RawMessage            `json:"metadata"`
	Transient struct {
		DisplayID string `json:"display_id"`
	} `json:"transient"`
	ExecutionCount int `json:"execution_count"`
}

// ErrorContent is the content of an error message.
type ErrorContent struct {
	EName     string   `json:"ename"`
	EValue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// InputRequest is the content of an input_request.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// InputReply is the content of an input_reply. The protocol's value is a string;
// google.colab's front-end calls take an object.
type InputReply struct {
	Value any `json:"value"`
}

// ShutdownRequest is the content of a shutdown_request.
type ShutdownRequest struct {
	Restart bool `json:"restart"`
}
