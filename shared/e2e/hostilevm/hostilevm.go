// Package hostilevm is a hostile executor with a valid key. Its answers are sealed
// correctly, but their content attacks the relay. The package has one table of attacks, Cases.
//
// It must not be linked into either program. It uses fakevm for the protocol and for
// files. Start reading at Cases.
package hostilevm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// Case is one attack.
type Case struct {
	Name  string
	About string // what it does and what it aims at
	// routes returns the false answers by route, such as "GET /v1/probe". Other routes are
	// answered honestly. Each VM has its own map, so an answer may count requests.
	routes func(vm *fakevm.VM) routes
	// warp, if set, changes every answer, given as decoded JSON.
	warp func(v any) any
	// wire, if set, changes how answers are sent.
	wire fakevm.Wire
	// Slow says that a call of a tool usually takes as long as it may.
	Slow bool
}

// Cases are all attacks. Add new ones here.
var Cases = slices.Concat(honestCases, nameCases, bombCases, textCases, stateCases, wireCases, formCases, orderCases, fileCases, refusalCases, JobCases)

// routes are answers by route, in the syntax of http.ServeMux.
type routes map[string]func(q question) fakevm.Reply

// question is a request and its body.
type question struct {
	*http.Request
	body []byte
}

// Find returns the case with that name.
func Find(name string) (Case, error) {
	for _, c := range Cases {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("there is no case %q", name)
}

// Start starts a VM for a case. It serves until the test ends.
func Start(t testing.TB, name string) *fakevm.VM {
	t.Helper()
	vm := fakevm.Start(t)
	if err := corrupt(vm, name); err != nil {
		t.Fatal(err)
	}
	return vm
}

// corrupt makes vm answer as the named case does.
func corrupt(vm *fakevm.VM, name string) error {
	c, err := Find(name)
	if err != nil {
		return err
	}
	answers, own := honest(vm), routes{}
	if c.routes != nil {
		own = c.routes(vm)
	}
	answers = with(answers, own)
	withRuns(vm, answers, own)
	table := http.NewServeMux()
	for route := range answers {
		table.Handle(route, http.NotFoundHandler())
	}
	vm.Wires(c.wire)
	vm.Lies(func(r *http.Request, body []byte) (fakevm.Reply, bool) {
		_, route := table.Handler(r)
		answer, ok := answers[route]
		if !ok {
			return fakevm.Reply{}, false // files and uploads, which fakevm knows
		}
		reply := answer(question{r, body})
		if _, raw := reply.Body.([]byte); c.warp != nil && !raw {
			reply.Body = c.warp(generic(reply.Body))
		}
		return reply, true
	})
	return nil
}

// generic returns v encoded as JSON and decoded without its type.
func generic(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the contract's own types
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil && err != io.EOF {
		panic(err)
	}
	return out
}

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

// stateCases report a saved state that the relay must not fetch.
var stateCases = []Case{
	reports("state-passwd", "/etc/passwd", int64(len(evil)), evil),
	reports("state-outside", "/tmp/colab-relay-state-x/../../etc/data.state", int64(len(evil)), evil),
	reports("state-name", "/tmp/colab-relay-state-x/other", int64(len(evil)), evil),
	reports("state-terabyte", "/tmp/colab-relay-state-x/data.state", 1<<40, evil),
	reports("state-size", "/tmp/colab-relay-state-x/data.state", 1<<30, evil),
	reports("state-digest", "/tmp/colab-relay-state-x/data.state", int64(len(evil)), "something else"),
	listOfState(),
}

// StatePath is a path that an honest kernel could report for a saved state.
const StatePath = "/tmp/colab-relay-state-x/data.state"

// reports returns a case that reports a state with this path and size and with the digest
// of content. Every path is a short file.
func reports(name, path string, size int64, content string) Case {
	return Case{
		Name: name, About: fmt.Sprintf("reports a saved state of %d bytes in %s, which is a different file", size, path),
		routes: func(*fakevm.VM) routes {
			return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[],"bytes":%d,"sha256":%q}}`,
				path, size, fakevm.Digest([]byte(content))))
		},
	}
}

// listOfState reports as many variables as fit into a blob.
func listOfState() Case {
	return Case{Name: "state-list", About: "reports a saved state of 5 million variables", routes: func(*fakevm.VM) routes {
		return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[%s{}],"bytes":20,"sha256":%q}}`,
			StatePath, strings.Repeat("{},", 300_000), fakevm.Digest([]byte(evil))))
	}}
}

// saving answers every submit with a display of the report.
func saving(report string) routes {
	return routes{
		"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
			return execution(requestID(q), contract.Event{
				Type: contract.EventDisplayData, Data: bundle(contract.OwnMIME+"state+json", string(json.RawMessage(report))),
			})
		},
		"GET " + contract.PathStat: func(q question) fakevm.Reply {
			return fakevm.Reply{Body: fileStat(q.URL.Query().Get("path"), []byte(evil))}
		},
		"GET " + contract.PathContent: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
	}
}

// orderCases send events and pages that no log has.
var orderCases = []Case{
	pageCase("backwards", "sends the events of a run backwards", contract.StatusSucceeded, func(int64) []contract.Event {
		all := printed(100, "line\n")
		for i := range all {
			all[i].Offset = int64(len(all) - i)
		}
		return all
	}, false),
	pageCase("last-offset", "sends an event at the largest offset", contract.StatusSucceeded, func(int64) []contract.Event {
		return []contract.Event{{Type: contract.EventStream, Text: "x", Offset: math.MaxInt64, Time: at}}
	}, false),
	pageCase("huge-gap", "sends a gap that stands for the largest number of events", contract.StatusSucceeded, func(int64) []contract.Event {
		return []contract.Event{{Type: contract.EventGap, Events: math.MaxInt64, Bytes: math.MinInt64, Time: at}}
	}, false),
	pageCase("endless-pages", "sends pages of a finished run without end", contract.StatusSucceeded, func(offset int64) []contract.Event {
		return []contract.Event{{Type: contract.EventStream, Name: contract.Stdout, Text: "more\n", Offset: offset, Time: at}}
	}, true),
	pageCase("empty-pages", "sends empty pages of a finished run without end", contract.StatusFailed, func(int64) []contract.Event { return nil }, true),
	pageCase("no-status", "sends pages without a status without end", "", func(int64) []contract.Event { return nil }, true),
	pageCase("flood", "prints without end in a run that never ends", contract.StatusRunning, func(offset int64) []contract.Event {
		all := printed(20_000, "flood "+Escape+"\n")
		for i := range all {
			all[i].Offset = offset + int64(i)
		}
		return all
	}, true),
	pageCase("prompts", "asks for input without end", contract.StatusWaitingForInput, func(offset int64) []contract.Event {
		return []contract.Event{{Type: contract.EventInputRequest, Prompt: strings.Repeat("?"+Escape, 10_000), Offset: offset, Time: at}}
	}, true),
	{Name: "line-100mb", About: "prints one line of 100 MB, in pages of 3 MB", routes: func(*fakevm.VM) routes {
		page := strings.Repeat("x", 60<<10)
		return followed(contract.StatusSucceeded, func(offset int64) ([]contract.Event, bool) {
			var all []contract.Event
			for i := range int64(50) {
				all = append(all, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: page, Offset: offset + i, Time: at})
			}
			return all, offset >= 34*50
		})
	}},
	shows("tracebacks", "raises an error with 200,000 frames", func() []contract.Event {
		return []contract.Event{{Type: contract.EventError, EName: "E" + Escape, EValue: strings.Repeat("v", 1<<20), Traceback: strings.Split(strings.Repeat("f"+Escape+"\n", 200_000), "\n")}}
	}),
	shows("carriage", "prints 2 MB of carriage returns, backspaces and moves of the cursor", func() []contract.Event {
		return many(30, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("\r\b\x1b[9999A\x1b[9999Cx", 3000)})
	}),
	shows("kinds", "sends events of unknown types and streams, and 20,000 names of displays", func() []contract.Event {
		all := many(20_000, contract.Event{Type: "update_display_data", Data: bundle("text/plain", `"x"`)})
		for i := range all {
			all[i].DisplayID = strconv.Itoa(i)
			if i%2 == 0 {
				all[i].Type = contract.EventType("kind " + strconv.Itoa(i))
			}
		}
		return all
	}),
}

func parseTime(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }

// printed returns n events that print text.
func printed(n int, text string) []contract.Event {
	return many(n, contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: text, Time: at})
}

// pageCase is a case in which every page of a run has these events. If endless, no page is the
// last one.
func pageCase(name, about string, status contract.Status, events func(offset int64) []contract.Event, endless bool) Case {
	return Case{Name: name, About: about, Slow: endless, routes: func(*fakevm.VM) routes {
		return followed(status, func(offset int64) ([]contract.Event, bool) { return events(offset), !endless })
	}}
}

// followed answers submits and reads with pages of one run.
func followed(status contract.Status, page func(offset int64) (events []contract.Event, last bool)) routes {
	answer := func(q question) fakevm.Reply {
		offset, _ := strconv.ParseInt(q.URL.Query().Get("offset"), 10, 64)
		e := finished(requestID(q))
		e.Status = status
		e.Events, e.End = page(offset)
		e.NextOffset = offset + int64(len(e.Events))
		return fakevm.Reply{Body: e}
	}
	return routes{"POST " + contract.PathExecutions: answer, "GET " + contract.PathExecution: answer, "POST " + contract.PathInterrupt: answer}
}

// refusalCases refuse everything, each with another code, or contradict themselves.
var refusalCases = append(allRefusals(), []Case{
	refusing("refuse-unknown", contract.Error{Code: "made up" + Escape, Message: strings.Repeat(Escape, 50_000), Hint: strings.Repeat("h", 1<<20)}),
	refusing("refuse-clock", contract.Error{Code: contract.CodeClockSkew, ServerTime: math.MaxInt64}),
	{Name: "blobs", About: "shows pictures whose references have impossible numbers and sizes", routes: func(*fakevm.VM) routes {
		return with(blobEvents(
			`{"blob":{"number":0,"sha256":"`+strings.Repeat("a", 64)+`","bytes":5}}`, `{"blob":{"number":-1,"sha256":"../../x","bytes":-5}}`,
			`{"blob":{"number":2147483647,"sha256":"x","bytes":9223372036854775807}}`, `{"blob":{"number":1,"sha256":"x","bytes":0}}`, `{"blob":{}}`, `{"blob":null}`,
		), routes{"GET " + contract.PathBlob: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} }})
	}},
	{Name: "picture-900mpx", About: "shows PNGs of 30,000 × 30,000 pixels, inline and by reference", routes: func(*fakevm.VM) routes {
		giant := bigPNG(30_000, 30_000)
		return with(blobEvents(inBase64(giant), `{"blob":{"number":1,"sha256":"`+fakevm.Digest(giant)+`","bytes":`+string(marshal(len(giant)))+`}}`),
			routes{"GET " + contract.PathBlob: just(giant)})
	}},
	{Name: "markers", About: "reports iterations, cells and states that no run has", routes: func(*fakevm.VM) routes {
		return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), markers()...) }}
	}},
}...)

// allRefusals has a case for each code of the contract.
func allRefusals() (all []Case) {
	for _, code := range contract.Codes {
		all = append(all, refusing("refuse-"+string(code), contract.Error{Code: code, Message: "m" + Escape, Hint: "h" + Escape, Retryable: true, ServerTime: -1}))
	}
	return all
}

func refusing(name string, e contract.Error) Case {
	return Case{Name: name, About: "refuses everything as " + strings.TrimPrefix(name, "refuse-") + ", again and again", Slow: true, routes: func(vm *fakevm.VM) routes {
		all := routes{}
		for route := range honest(vm) {
			all[route] = func(question) fakevm.Reply { return refuse(e) }
		}
		return all
	}}
}

// blobEvents answers a submit with pictures that have these payloads.
func blobEvents(payloads ...string) routes {
	var all []contract.Event
	for _, payload := range payloads {
		all = append(all, picture(payload))
	}
	return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), all...) }}
}

// markers are displays of the relay's own types, as no code of the relay makes them.
func markers() (all []contract.Event) {
	values := []string{`{}`, `null`, `[]`, `"x"`, `-1`, `{"done":9223372036854775807,"iteration":-5,"run":"` + escaped[1:3] + `","missing":true}`, `{"manifest":{"variables":[{}]},"path":"/etc/passwd"}`}
	for _, kind := range []string{"iteration", "state", "state-progress", "cells", "missing", "install", "frames", "unheard-of"} {
		for _, value := range values {
			if json.Valid([]byte(value)) {
				all = append(all, contract.Event{Type: contract.EventDisplayData, Data: bundle(contract.OwnMIME+kind+"+json", value)})
			}
		}
	}
	return all
}
