// Package contract holds what crosses between relay and executor: paths,
// headers, bodies, event types, statuses, error codes and limits of protocol 2.
//
// It holds no behaviour beyond what both sides must agree on to the letter, and
// imports nothing of the project. Start reading at the Path constants, then at
// Execution.
//
// JSON is UTF-8, times are RFC 3339 in UTC, sizes are bytes unless a field's
// name says otherwise.
package contract

import "time"

// Protocol is the version of the contract spoken by this build.
const Protocol = 2

// Routes. An {id} is an identifier made by the programs; whatever a user typed
// travels in the query or the body.
const (
	PathHealth        = "/health"
	PathProbe         = "/v1/probe"
	PathExecutions    = "/v1/executions"
	PathExecution     = "/v1/executions/{id}"
	PathInterrupt     = "/v1/executions/{id}/interrupt"
	PathInput         = "/v1/executions/{id}/input"
	PathBlob          = "/v1/executions/{id}/blobs/{sha256}"
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
	PathUploadCommit  = "/v1/uploads/{id}/commit"
	PathUploadBatch   = "/v1/batches"
	PathShutdown      = "/v1/shutdown"
)

// Headers of the contract's own. Those of RFC 9421 and RFC 9530 live in shared/auth.
const (
	// HeaderInstance is an Instance: in a signed answer the executor that gave it, in a
	// request of any method but GET the one that is meant.
	HeaderInstance = "Executor-Instance"
	// HeaderRequestID names one HTTP request in logs and error bodies.
	HeaderRequestID = "X-Request-Id"
	// HeaderSkipInterstitial makes ngrok's free endpoints serve API clients directly.
	HeaderSkipInterstitial = "Ngrok-Skip-Browser-Warning"
)

// Limits that both sides know. The executor enforces them.
const (
	MaxHeaderBytes    = 16 << 10
	MaxBodyBytes      = 8 << 20
	MaxBlobPart       = 8 << 20 // bytes of one blob answer
	MaxStreamEvent    = 16 << 10
	MaxErrorEvent     = 64 << 10
	MaxEventBytes     = 1 << 20  // one event as JSON
	InlineMIMEBytes   = 64 << 10 // a larger payload becomes a blob
	CompressAbove     = 1 << 10
	MaxReadBytes      = 4 << 20 // events in one answer
	DefaultReadBytes  = 1 << 20
	MaxWait           = 50 * time.Second
	DefaultTimeout    = 10 * time.Minute
	MaxTimeout        = 24 * time.Hour
	MaxInputWait      = time.Hour
	MaxListExecutions = 1000
	MaxRequestIDLen   = 128
	CodePreviewRunes  = 120
	ClockSkew         = 300 * time.Second
)

// Health is the answer of PathHealth, the only unsigned one.
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
	Status    KernelStatus `json:"status"`
	KernelID  string       `json:"kernel_id"` // changes with each kernel life; empty before the first
	PID       int          `json:"pid"`
	Python    string       `json:"python"`    // version, as kernel_info says
	IPyKernel string       `json:"ipykernel"` // version
	StartedAt *time.Time   `json:"started_at"`
	Lives     int          `json:"lives"`  // kernels started so far by this executor
	Reason    string       `json:"reason"` // why the last life ended, empty when none did
}

// KernelRef is the body of POST PathKernelRestart and PathCleanup: the kernel that is
// meant. A kernel that is gone is not the next one: a request that comes late, or
// twice, must not end a kernel or delete variables that its sender never saw.
//
// A restart of a kernel that is not the current one does nothing and answers with the
// current one: what was wanted, a kernel after that one, is there. So restarts may be
// repeated, and several for one kernel at once are one. A cleanup of it is refused as
// a conflict, and the current kernel is left as it is.
type KernelRef struct {
	// KernelID is as Kernel tells it. Empty means that there was no kernel to name: it
	// was starting, or had died too often and been given up.
	KernelID string `json:"kernel_id"`
}

// KernelStatus is what the kernel is doing.
type KernelStatus string

// Kernel statuses. starting, idle, busy and dead are Jupyter's words.
const (
	KernelStarting KernelStatus = "starting"
	KernelIdle     KernelStatus = "idle"
	KernelBusy     KernelStatus = "busy"
	KernelDead     KernelStatus = "dead" // gave up after too many deaths in a row
)

// Shutdown is the answer of PathShutdown.
type Shutdown struct {
	Status string `json:"status"`
}
