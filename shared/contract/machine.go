package contract

import (
	"strings"
	"time"
)

// Probe is the answer of PathProbe.
type Probe struct {
	Platform             Platform          `json:"platform"`
	Compute              Compute           `json:"compute"`
	GPU                  GPU               `json:"gpu"`
	TPU                  TPU               `json:"tpu"`
	Storage              []Disk            `json:"storage,omitzero"`
	Python               Python            `json:"python"`
	Packages             map[string]string `json:"packages,omitzero"` // version of each distribution, found without importing any
	Limits               Limits            `json:"limits"`
	SessionUptimeMinutes float64           `json:"session_uptime_minutes"`
	// LoadedVariables is absent while code runs.
	LoadedVariables      []string `json:"loaded_variables,omitzero"`
	LoadedVariablesCount *int     `json:"loaded_variables_count,omitzero"`
	Recommendations      []string `json:"recommendations,omitzero"`
}

// Platform is where the executor runs.
type Platform struct {
	Name         string `json:"name"` // colab, kaggle, lightning, sagemaker, codespaces, runpod, container, machine
	OS           string `json:"os"`   // the name and version of the distribution
	Kernel       string `json:"kernel"`
	Architecture string `json:"architecture"`
	Hostname     string `json:"hostname"`
	Container    bool   `json:"container"`
}

// Compute is processor and memory. In a container with a memory limit, the limit applies.
type Compute struct {
	CPUCount          int     `json:"cpu_count"`
	CPUModel          string  `json:"cpu_model"`
	Load1             float64 `json:"load_1"` // load average over one minute
	MemoryTotalGB     float64 `json:"memory_total_gb"`
	MemoryAvailableGB float64 `json:"memory_available_gb"`
	MemoryUsedPct     float64 `json:"memory_used_pct"`
}

// GPU is the output of nvidia-smi.
type GPU struct {
	Available bool        `json:"available"`
	Driver    string      `json:"driver"`
	Devices   []GPUDevice `json:"devices,omitzero"`
}

// GPUDevice is one GPU. Fields for which nvidia-smi has no number are absent.
type GPUDevice struct {
	Index          *int     `json:"index,omitzero"`
	Name           string   `json:"name"`
	MemoryUsedMB   *float64 `json:"memory_used_mb,omitzero"`
	MemoryTotalMB  *float64 `json:"memory_total_mb,omitzero"`
	UtilizationPct *float64 `json:"utilization_pct,omitzero"`
}

// TPU is detected by device files and the environment.
type TPU struct {
	Available bool     `json:"available"`
	Devices   []string `json:"devices,omitzero"`
}

// Disk is one file system that matters to a user.
type Disk struct {
	Path    string  `json:"path"`
	TotalGB float64 `json:"total_gb"`
	FreeGB  float64 `json:"free_gb"`
	UsedPct float64 `json:"used_pct"`
}

// Python is the kernel's interpreter.
type Python struct {
	Version    string `json:"version"`
	Executable string `json:"executable"`
	IPyKernel  string `json:"ipykernel"`
	IPython    string `json:"ipython"`
}

// Limits are the limits that callers should know.
type Limits struct {
	MaxTimeoutSeconds int     `json:"max_timeout_seconds"`
	MaxQueue          int     `json:"max_queue"`
	MaxCodeBytes      int     `json:"max_code_bytes"`
	MaxLogBytes       int64   `json:"max_log_bytes"` // output kept per execution
	MinMemoryGB       float64 `json:"min_memory_gb"` // below this, runs are refused
	// SessionMinutesLeft is an estimate from the platform's published limit; absent if none is known.
	SessionMinutesLeft *float64 `json:"session_minutes_left,omitzero"`
}

// Variable is one user variable. Fields that can't be determined without running user code
// are absent.
type Variable struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Size  *int64  `json:"size,omitzero"`  // items: len() of built-in and known array types
	Shape []int64 `json:"shape,omitzero"` // arrays, frames, tensors
	Dtype *string `json:"dtype,omitzero"`
	Bytes *int64  `json:"bytes,omitzero"` // memory of the object itself, without what it refers to
}

// Variables is the answer of PathVariables, sorted by name.
type Variables struct {
	Count     int        `json:"count"` // all variables, even if Variables was cut
	Variables []Variable `json:"variables"`
	KernelID  string     `json:"kernel_id"`
}

// Inspection is the answer of PathInspect.
type Inspection struct {
	Variable
	Preview  string `json:"preview"` // at most 4 KiB, for recognised types only
	KernelID string `json:"kernel_id"`
}

// Cleanup is the answer of PathCleanup.
type Cleanup struct {
	VariablesCleared  int      `json:"variables_cleared"`
	ClearedVariables  []string `json:"cleared_variables"`
	GPUCacheCleared   bool     `json:"gpu_cache_cleared"`
	FiguresClosed     int      `json:"figures_closed"`
	MemoryBeforeBytes uint64   `json:"memory_before_bytes"` // in use on the machine
	MemoryAfterBytes  uint64   `json:"memory_after_bytes"`
	MemoryFreeBytes   uint64   `json:"memory_free_bytes"` // available after
	KernelID          string   `json:"kernel_id"`
}

// Files is the answer of PathFiles: a page of a folder's entries, sorted by name, after the
// name given by after.
type Files struct {
	Path      string `json:"path"`
	FileCount int    `json:"file_count"`
	DirCount  int    `json:"dir_count"`
	Files     []File `json:"files,omitzero"`
	Truncated bool   `json:"truncated"` // there are more entries; the counts are of all
}

// At returns the path of the entry with a name.
func (f *Files) At(name string) string { return PathIn(f.Path, name) }

// PathIn returns the path of the entry with a name in a folder.
func PathIn(folder, name string) string {
	if strings.HasSuffix(folder, "/") {
		return folder + name
	}
	return folder + "/" + name
}

// MaxListFiles is how many entries Files.Files may have.
const MaxListFiles = 1000

// File is one entry of a folder.
type File struct {
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	IsDir     bool      `json:"is_dir"`
	SizeBytes int64     `json:"size_bytes"` // 0 unless it is a regular file
	Modified  time.Time `json:"modified"`
	// Executable is a regular file that its owner may execute.
	Executable bool `json:"executable,omitempty"`
	// Special is a device, FIFO, socket, or a link to something that is not served.
	Special bool `json:"special,omitempty"`
	// Loop is a link to a folder that contains it: a program that follows such links never
	// ends.
	Loop bool `json:"loop,omitempty"`
}
