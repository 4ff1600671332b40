package hostilevm

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

var honestCases = []Case{
	{Name: "none", About: "tells the truth, for comparison"},
}

// Ids that all answers of a VM use.
const (
	kernelID    = "kernel-1"
	executionID = "execution-1"
	python      = "3.12.1"
)

// at is the time of everything in the answers.
var at = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// honest returns the answers of a VM that does not lie. Submitted code prints one line and
// succeeds. fakevm answers requests for jobs, files and uploads.
func honest(vm *fakevm.VM) routes {
	truth := func(q question) fakevm.Reply { return vm.Truth(q.Request, q.body) }
	return routes{
		"GET " + contract.PathHealth:         just(health()),
		"GET " + contract.PathProbe:          just(probe()),
		"GET " + contract.PathKernel:         just(kernel()),
		"POST " + contract.PathKernelRestart: just(kernel()),
		"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
			return execution(requestID(q), contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: "hello\n"})
		},
		"GET " + contract.PathExecutions: just(contract.ExecutionList{Executions: []contract.Execution{finished("request-1")}}),
		"GET " + contract.PathExecution:  just(finished("request-1")),
		"POST " + contract.PathInterrupt: just(finished("request-1")),
		"POST " + contract.PathInput:     just(finished("request-1")),
		"GET " + contract.PathVariables:  just(contract.Variables{Count: 1, Variables: []contract.Variable{variable()}, KernelID: kernelID}),
		"GET " + contract.PathInspect:    just(contract.Inspection{Variable: variable(), Preview: "[1, 2, 3]", KernelID: kernelID}),
		"POST " + contract.PathCleanup:   just(contract.Cleanup{VariablesCleared: 1, ClearedVariables: []string{"x"}, KernelID: kernelID}),
		"POST " + contract.PathJobs:      truth,
		"GET " + contract.PathJobs:       truth,
		"GET " + contract.PathJob:        truth,
		"PATCH " + contract.PathJob:      truth,
		"DELETE " + contract.PathJob:     truth,
		"POST " + contract.PathShutdown:  just(contract.Shutdown{Status: "shutting_down"}),
	}
}

// just returns an answer that is always the same.
func just(v any) func(question) fakevm.Reply {
	return func(question) fakevm.Reply { return fakevm.Reply{Body: v} }
}

func health() contract.Health {
	return contract.Health{Status: "ok", UptimeMinutes: 15, MemoryAvailableGB: 10.5, MemoryUsedPct: 15.2, Version: "v1.0.0", Protocol: contract.Protocol}
}

func kernel() contract.Kernel {
	return contract.Kernel{Status: contract.KernelIdle, KernelID: kernelID, PID: 42, Python: python, IPyKernel: "6.29.5", StartedAt: &at, KernelsStarted: 1}
}

func probe() contract.Probe {
	one := 1
	return contract.Probe{
		Platform: contract.Platform{Name: "colab", OS: "Ubuntu 22.04", Kernel: "6.1.0", Architecture: "x86_64", Hostname: "vm", Container: true},
		Compute:  contract.Compute{CPUCount: 2, CPUModel: "Intel Xeon", MemoryTotalGB: 12.7, MemoryAvailableGB: 10.5, MemoryUsedPct: 15.2},
		GPU:      contract.GPU{Available: true, Driver: "550.54", Devices: []contract.GPUDevice{{Index: &one, Name: "Tesla T4"}}},
		TPU:      contract.TPU{Devices: []string{"accel0"}},
		Storage:  []contract.Disk{{Path: "/content", TotalGB: 100, FreeGB: 60, UsedPct: 40}},
		Python:   contract.Python{Version: python, Executable: "/usr/bin/python3", IPyKernel: "6.29.5", IPython: "7.34.0"},
		Packages: map[string]string{"numpy": "1.26.4"}, Limits: contract.Limits{MaxTimeoutSeconds: 86400, MaxQueue: 64, MaxCodeBytes: 8 << 20, MaxLogBytes: 256 << 20},
		LoadedVariables: []string{"x"}, LoadedVariablesCount: &one, Recommendations: []string{"use the GPU"},
	}
}

func variable() contract.Variable {
	size, dtype := int64(3), "int64"
	return contract.Variable{Name: "x", Type: "ndarray", Size: &size, Shape: []int64{3}, Dtype: &dtype}
}

// finished returns a succeeded execution without further events.
func finished(request string) contract.Execution {
	return contract.Execution{
		ExecutionID: executionID, RequestID: request, Status: contract.StatusSucceeded, ExecutionCount: 1, KernelID: kernelID,
		CreatedAt: at, StartedAt: &at, FinishedAt: &at, TimeoutSeconds: 600, CodePreview: "print('hello')", Events: []contract.Event{}, End: true,
	}
}

// execution answers with a succeeded execution that has these events.
func execution(request string, events ...contract.Event) fakevm.Reply {
	e := finished(request)
	events = slices.Clone(events) // which other answers may share
	for i := range events {
		events[i].Offset, events[i].Time = int64(i), at
	}
	e.Events, e.NextOffset = events, int64(len(events))
	return fakevm.Reply{Body: e}
}

// requestID returns the request_id of a submit.
func requestID(q question) string {
	var s contract.Submit
	_ = json.Unmarshal(q.body, &s)
	return s.RequestID
}

// refuse answers with a contract.Error.
func refuse(e contract.Error) fakevm.Reply {
	return fakevm.Reply{Status: http.StatusConflict, Body: contract.ErrorBody{Error: e}}
}
