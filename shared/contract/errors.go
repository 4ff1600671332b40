package contract

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

// ErrorBody is the JSON body of a failed request.
type ErrorBody struct {
	Error Error `json:"error"`
}
