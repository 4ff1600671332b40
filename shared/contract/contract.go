// Package contract defines protocol 4 between relay and executor: paths, headers, bodies,
// event types, statuses, error codes and limits.
//
// It contains only behaviour that must be identical on both sides, and imports nothing of
// the project. Start reading at the Path constants, then at Execution.
//
// JSON is UTF-8, times are RFC 3339 in UTC, and sizes are bytes unless a field's name has
// another unit.
package contract

import "time"

// Protocol is the version of the protocol that this build supports. It is part of the key
// schedule of shared/auth, so that programs of two versions understand nothing of each other: a
// field that one of them does not know would be ignored. The relay then says which one is older.
const Protocol = 4

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
	PathUploadCommit  = "/v1/uploads/{id}/commit"
	PathUploadBatch   = "/v1/batches"
	PathShutdown      = "/v1/shutdown"
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

// Shutdown is the answer of PathShutdown.
type Shutdown struct {
	Status string `json:"status"`
}
