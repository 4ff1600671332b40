package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestEveryCodeAndKindIsTranslated(t *testing.T) {
	for _, code := range contract.Codes {
		p := problemOf(fmt.Errorf("asking: %w", &contract.Error{Code: code, Message: "what happened"}))
		if p.Code != string(code) || p.Message == "" || p.Hint != hint.ForRefusal(&contract.Error{Code: code}).Model {
			t.Errorf("%s: %+v", code, p)
		}
	}
	for _, kind := range client.Kinds {
		p := problemOf(&client.Error{Kind: kind, Message: "m", Hint: "h"})
		if diff := cmp.Diff(&Problem{Code: string(kind), Message: "m", Hint: "h"}, p); diff != "" {
			t.Error(diff)
		}
	}
	for _, c := range []struct {
		err  error
		code string
	}{
		{context.Canceled, codeCancelled},
		{&client.Error{Kind: client.KindTimeout, Err: context.Canceled}, codeCancelled},
		{context.DeadlineExceeded, string(client.KindTimeout)},
		{errors.New("other"), codeInternal},
		{&contract.Error{Code: "of_a_later_release", Message: "m"}, hint.CodeUnknown},
	} {
		if p := problemOf(c.err); p.Code != c.code || p.Message == "" || p.Hint == "" {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
}

func TestEveryBadEndOfARunHasAHint(t *testing.T) {
	for _, s := range []contract.Status{
		contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted,
		contract.StatusCancelled, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost, "of_a_later_release",
	} {
		code := string(s)
		if s == "of_a_later_release" {
			code = hint.CodeUnknown
		}
		p := runProblem(contract.Execution{Status: s})
		if p == nil || p.Code != code || p.Message == "" || p.Hint == "" {
			t.Errorf("%s: %+v", s, p)
		}
	}
	for _, s := range []contract.Status{contract.StatusQueued, contract.StatusRunning, contract.StatusWaitingForInput, contract.StatusSucceeded} {
		if p := runProblem(contract.Execution{Status: s}); p != nil {
			t.Errorf("%s: %+v", s, p)
		}
	}
}

// toolCall is a correct call and the request that it makes; method is empty if it sends none.
type toolCall struct{ args, method, path string }

// calls is one call of every tool.
var calls = map[string]toolCall{
	"check_colab_connection":        {`{}`, "GET", contract.PathKernel},
	"probe_colab_environment":       {`{}`, "GET", contract.PathProbe},
	"run_code_quick":                {`{"code":"1"}`, "POST", contract.PathExecutions},
	"run_code_long":                 {`{"code":"1","timeout_seconds":5}`, "POST", contract.PathExecutions},
	"get_execution":                 {`{"execution_id":"e1"}`, "GET", contract.PathExecutions + "/e1"},
	"list_executions":               {`{}`, "GET", contract.PathExecutions},
	"interrupt_execution":           {`{"execution_id":"e1"}`, "POST", contract.PathExecutions + "/e1/interrupt"},
	"provide_input":                 {`{"execution_id":"e1","text":""}`, "POST", contract.PathExecutions + "/e1/input"},
	"restart_kernel":                {`{}`, "POST", contract.PathKernelRestart},
	"run_chunked_operation":         {`{"setup_code":"","loop_code":"1","n_iterations":3}`, "POST", contract.PathJobs},
	"get_checkpoint":                {`{"operation":"chunked_op"}`, "", ""},
	"list_colab_files":              {`{}`, "GET", contract.PathFiles},
	"cleanup_colab":                 {`{}`, "POST", contract.PathCleanup},
	"list_colab_variables":          {`{}`, "GET", contract.PathVariables},
	"inspect_variable":              {`{"name":"x"}`, "GET", contract.PathInspect},
	"download_from_colab":           {`{"remote_path":"/content/x"}`, "GET", contract.PathStat},
	"get_cells":                     {`{"notebook_path":"` + sample + `"}`, "", ""},
	"add_code_cell":                 {`{"notebook_path":"` + sample + `","code":"1","dry_run":true}`, "", ""},
	"add_text_cell":                 {`{"notebook_path":"` + sample + `","content":"a","dry_run":true}`, "", ""},
	"update_cell":                   {`{"notebook_path":"` + sample + `","cellId":"one","content":"1","dry_run":true}`, "", ""},
	"delete_cell":                   {`{"notebook_path":"` + sample + `","cellId":"one","dry_run":true}`, "", ""},
	"move_cell":                     {`{"notebook_path":"` + sample + `","cellId":"one","cellIndex":0,"dry_run":true}`, "", ""},
	"run_code_cell":                 {`{"notebook_path":"` + sample + `","cellId":"one"}`, "POST", contract.PathExecutions},
	"run_notebook":                  {`{"notebook_path":"` + otherSample + `"}`, "POST", contract.PathJobs},
	"save_kernel_state":             {`{"name":"s"}`, "POST", contract.PathExecutions},
	"restore_kernel_state":          {`{"name":"s"}`, "", ""}, // nothing is saved
	"install_packages":              {`{"packages":"x"}`, "POST", contract.PathExecutions},
	"preview_dataframe":             {`{"name":"df"}`, "POST", contract.PathExecutions},
	"query_dataframes":              {`{"sql":"SELECT 1"}`, "POST", contract.PathExecutions},
	"open_colab_browser_connection": {`{}`, "", ""},
	"start_colab_vm":                {`{}`, "", ""},
	"list_colab_vms":                {`{}`, "", ""},
	"stop_colab_vm":                 {`{"id":"vm"}`, "", ""},
	"upload_to_colab":               {`{"local_path":"` + thisFile() + `"}`, "POST", contract.PathUploads},
}

// Notebooks with a single cell, whose id is one. A run and the run of a cell may not use the same.
const sample, otherSample = "one.ipynb", "other.ipynb"

// sampleRoots are where they are.
func sampleRoots(t *testing.T) notebook.Roots {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{sample, otherSample} {
		text := `{"cells": [` + codeCell("one", "print(1)") + `], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return notebook.Roots{Dirs: []string{dir}, Working: dir}
}

// thisFile is one that can be uploaded.
func thisFile() string {
	path, err := filepath.Abs("errors_test.go")
	if err != nil {
		panic(err)
	}
	return path
}

// TestEveryToolsEveryRefusalFitsItsSchema: host.result validates each answer. The client
// retries some refusals for the complete time of a call; others it returns immediately, and
// those get time because tools write to the disk before they submit.
func TestEveryToolsEveryRefusalFitsItsSchema(t *testing.T) {
	tier.Long(t)
	retried := []contract.Code{contract.CodeRateLimited, contract.CodeKernelStarting, contract.CodeQueueFull}
	t.Run("retried", func(t *testing.T) {
		onOwnClock(t, 10*time.Second, func(t *testing.T, h *host, f *fakeExecutor) { checkRefusals(t, h, f, retried) })
	})
	t.Run("returned immediately", func(t *testing.T) {
		h, f := serveFake(t, 10*time.Second)
		checkRefusals(t, h, f, slices.DeleteFunc(slices.Clone(contract.Codes), func(c contract.Code) bool {
			// The client corrects its clock and sends the request again, and reports requests that
			// are always replayed as a timeout; its own tests check that.
			return c == contract.CodeClockSkew || c == contract.CodeReplayed || slices.Contains(retried, c)
		}))
	})
}

// checkRefusals calls all tools concurrently, in two groups: what one group's executor
// refuses, tools of the other one need.
func checkRefusals(t *testing.T, h *host, f *fakeExecutor, codes []contract.Code) {
	t.Helper()
	neededByOthers := func(c toolCall) bool {
		return c.method == "GET" && slices.Contains([]string{contract.PathKernel, contract.PathExecutions, contract.PathStat}, c.path)
	}
	for _, code := range codes {
		for _, group := range []bool{false, true} {
			f.answer("GET", contract.PathExecutions, contract.ExecutionList{})
			f.answer("GET", contract.PathKernel, contract.Kernel{KernelID: "kernel-1"})
			f.on("GET", contract.PathStat, func(*http.Request, []byte) (int, any) {
				return http.StatusNotFound, &contract.Error{Code: contract.CodeNotFound, Message: "nothing there yet"}
			})
			chosen := maps.Clone(calls)
			maps.DeleteFunc(chosen, func(_ string, c toolCall) bool { return c.method == "" || neededByOthers(c) != group })
			for _, c := range chosen {
				f.on(c.method, c.path, func(*http.Request, []byte) (int, any) {
					return http.StatusConflict, &contract.Error{Code: code, Message: "what happened"}
				})
			}
			for name, r := range callAll(h, chosen) {
				o := r.outcome(t)
				if o.Error == nil || o.Error.Code != string(code) || o.Runtime != "test" {
					t.Errorf("%s refused with %s: %s", name, code, r.Structured)
					continue
				}
				if !strings.Contains(r.Content[0].Text, o.Error.Hint) {
					t.Errorf("%s: the text lacks the hint", name)
				}
			}
		}
	}
}

// callAll makes the calls concurrently and returns their results by tool.
func callAll(h *host, calls map[string]toolCall) map[string]result {
	h.t.Helper()
	answers := map[string]<-chan message{}
	for name, c := range calls {
		_, answers[name] = h.begin("tools/call", params(name, json.RawMessage(c.args)))
	}
	results := map[string]result{}
	for name, ch := range answers {
		results[name] = h.result(name, h.await(ch))
	}
	return results
}

func TestEveryToolHasACallHere(t *testing.T) {
	for _, tool := range toolsOf(sets) {
		if _, ok := calls[tool.def.Name]; !ok {
			t.Errorf("no call of %s", tool.def.Name)
		}
	}
}

func TestEveryToolReportsThatTheVMIsGone(t *testing.T) {
	tier.Long(t)
	synctest.Test(t, func(t *testing.T) {
		gone := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		// Each call has its own client: calls of one client wait for the first that requests
		// the instance.
		resolve := func(string) (runtimes.Runtime, error) { return directly(t, auth.GenerateSecret(), gone), nil }
		h := startHost(t, Config{Toolsets: toolsets.All, Resolve: resolve, CheckpointDir: t.TempDir(), Notebooks: sampleRoots(t)})
		remote := maps.Clone(calls)
		maps.DeleteFunc(remote, func(_ string, c toolCall) bool { return c.method == "" })
		for name, r := range callAll(h, remote) {
			if o := r.outcome(t); o.Error == nil || o.Error.Code != string(client.KindUnreachable) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	})
}

func TestEveryToolReportsWrongSettings(t *testing.T) {
	h := startHost(t, Config{Toolsets: toolsets.All, Problems: []error{errors.New("RELAY_HOLD is bad"), errors.New("COLAB_URL is bad")}})
	for name, c := range calls {
		o := h.call(name, json.RawMessage(c.args)).outcome(t)
		if o.Error == nil || o.Error.Code != codeNotConfigured || !strings.Contains(o.Error.Message, "RELAY_HOLD") || !strings.Contains(o.Error.Message, "COLAB_URL") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// localTools use nothing but files of this computer.
var localTools = []string{"get_checkpoint", "get_cells", "add_code_cell", "add_text_cell", "update_cell", "delete_cell", "move_cell"}

func TestEveryToolReportsThatNothingIsPaired(t *testing.T) {
	h := startHost(t, Config{
		Resolve: func(name string) (runtimes.Runtime, error) {
			return runtimes.Runtime{}, fmt.Errorf("nothing named %q", name)
		},
		Toolsets: toolsets.All, Notebooks: sampleRoots(t), CheckpointDir: t.TempDir(),
	})
	for name, c := range calls {
		o := h.call(name, json.RawMessage(c.args)).outcome(t)
		if slices.Contains(localTools, name) {
			if o.Error != nil || !o.Success {
				t.Errorf("%s: %+v", name, o)
			}
			continue
		}
		if o.Error == nil || o.Error.Code != codeNotConfigured || o.Runtime != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestAnAmbiguousRuntimeIsReported(t *testing.T) {
	p := resolveProblem(fmt.Errorf("%w: %q, %q", pairing.ErrAmbiguous, "a", "b"))
	if p.Code != codeNotConfigured || !strings.Contains(p.Message, `"b"`) || !strings.Contains(p.Hint, "runtime") {
		t.Errorf("%+v", p)
	}
}

func TestAnUnknownRuntimesNextStepFitsWhatIsPaired(t *testing.T) {
	for err, want := range map[error]string{pairing.ErrUnknownName: "Call again with the name of a paired runtime", pairing.ErrNotPaired: "Ask the user to do that"} {
		if p := resolveProblem(fmt.Errorf("runtime %q is %w", "x", err)); !strings.HasPrefix(p.Hint, want) {
			t.Errorf("%+v, want %q", p, want)
		}
	}
}

func TestEveryToolAnswersBadArguments(t *testing.T) {
	h, f := serveFake(t, time.Second)
	cases := map[string][]string{
		"run_code_quick":      {`{}`, `{"code":1}`, `{"code":""}`, `{"code":null}`, `{"code":"1","timeout":5}`, `[]`, `"code"`, `7`, `{"code":["a"]}`},
		"run_code_long":       {`{"code":"1","timeout_seconds":0}`, `{"code":"1","timeout_seconds":-1}`, `{"code":"1","timeout_seconds":86401}`, `{"code":"1","timeout_seconds":"nan"}`, `{"code":"1","timeout_seconds":true}`, `{"code":"1","checkpoint_name":3}`},
		"get_execution":       {`{}`, `{"execution_id":"e1","offset":-1}`, `{"execution_id":"e1","offset":1.5}`, `{"execution_id":"e1","wait_seconds":-1}`, `{"execution_id":"e1","wait_seconds":"NaN"}`, `{"execution_id":"e1","offset":1e30}`},
		"list_executions":     {`{"limit":0}`, `{"limit":1001}`, `{"limit":"all"}`},
		"interrupt_execution": {`{}`, `{"execution_id":""}`},
		"provide_input":       {`{"execution_id":"e1"}`, `{"text":"x"}`, `{"execution_id":"e1","text":5}`},
		"list_colab_files":    {`{"path":5}`, `{"path":"/x","recursive":true}`},
		"inspect_variable":    {`{}`, `{"name":""}`},
		"get_checkpoint":      {`{}`, `{"operation":""}`},
		"run_chunked_operation": {
			`{"setup_code":"","loop_code":"1"}`, `{"setup_code":"","loop_code":"","n_iterations":1}`, `{"checkpoint_name":"no such run"}`,
			`{"setup_code":"","loop_code":"1","n_iterations":1,"batch_size":-1}`, `{"setup_code":"","loop_code":"1","n_iterations":1,"checkpoint_name":""}`, `{"setup_code":"","loop_code":"1","n_iterations":1,"on_change":"maybe"}`,
		},
		"download_from_colab": {`{}`, `{"remote_path":""}`, `{"remote_path":"x","overwrite":"yes"}`, `{"remote_path":"x","local_filename":7}`},
		"preview_dataframe":   {`{}`, `{"name":""}`, `{"name":"df","rows":201}`, `{"name":"df","offset":-1}`, `{"name":"df","filter":5}`},
		"query_dataframes":    {`{}`, `{"sql":""}`, `{"sql":"SELECT 1","rows":-1}`, `{"sql":"SELECT 1","timeout_seconds":301}`},
		"install_packages":    {`{"packages":[1]}`, `{"packages":{"x":1}}`, `{"packages":"x","upgrade":"yes"}`, `{"packages":"x","timeout_seconds":0}`},
		"upload_to_colab":     {`{}`, `{"local_path":""}`, `{"local_path":"x","remote_path":1}`, `{"local_path":"x","overwrite":1}`},
	}
	for _, tool := range toolsOf(sets) {
		cases[tool.def.Name] = append(cases[tool.def.Name], `{"no_such_argument":1}`, `{"runtime":5}`, `[1]`)
	}
	for name, all := range cases {
		for _, args := range all {
			o := h.call(name, json.RawMessage(args)).outcome(t)
			if o.Error == nil || o.Error.Code != codeBadRequest {
				t.Errorf("%s %s: %+v", name, args, o)
			}
			if o.Error != nil && (strings.Contains(o.Error.Message, "json:") || strings.Contains(o.Error.Message, "Go ")) {
				t.Errorf("%s %s: mentions Go: %s", name, args, o.Error.Message)
			}
		}
	}
	if f.count("POST", contract.PathExecutions) != 0 {
		t.Error("bad arguments reached the executor")
	}
}

// parsed reads arguments of the type A.
func parsed[A any](raw string) (args A, p *Problem) {
	p = parseArguments(argumentsOf(reflect.TypeFor[A]()), json.RawMessage(raw), reflect.ValueOf(&args).Elem())
	return args, p
}

func TestAllBadArgumentsAreReportedTogether(t *testing.T) {
	_, p := parsed[longArgs](`{"timeout_seconds":-5,"foo":1,"checkpoint_name":2}`)
	if p == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"code" is missing`, `"timeout_seconds" must be at least 1`, `no argument "foo"`, `"checkpoint_name" must be a string`} {
		if !strings.Contains(p.Message, want) {
			t.Errorf("%q is not in %q", want, p.Message)
		}
	}
	args, p := parsed[longArgs](`{"code":"x"}`)
	if p != nil || args.Timeout != 600 || args.Checkpoint != "" || args.Code != "x" {
		t.Errorf("%+v %v", args, p)
	}
}

func TestArgumentsMayBeSpelledInCamelOrSnakeCase(t *testing.T) {
	type args struct {
		Cell  string `json:"cellId"`
		Index int64  `json:"cell_index" default:"-1"`
		target
	}
	for _, raw := range []string{`{"cellId":"a","cell_index":3}`, `{"cell_id":"a","cellIndex":3}`, `{"CellID":"a","CELL_INDEX":3,"Runtime":""}`} {
		if got, p := parsed[args](raw); p != nil || got.Cell != "a" || got.Index != 3 {
			t.Errorf("%s: %+v %v", raw, got, p)
		}
	}
	for raw, want := range map[string]string{
		`{"cellId":"a","cell_id":"b"}`:   `"cellId" is given twice, also as "cell_id"`,
		`{"cell_id":"a","CELL_ID":"b"}`:  `"cellId" is given twice`,
		`{"cell id":"a"}`:                `there is no argument "cell id"`,
		`{"cell_id":1}`:                  `"cellId" must be a string`,
		`{"cellId":"a","cellindex":1.5}`: `"cell_index" must be a whole number`,
		`{"cellId":"a","cellindex":"x"}`: `"cell_index" must be a whole number`,
	} {
		if _, p := parsed[args](raw); p == nil || !strings.Contains(p.Message, want) {
			t.Errorf("%s: %v, want %q", raw, p, want)
		}
	}
}

func FuzzParseArguments(f *testing.F) {
	f.Add([]byte(`{"code":"x","timeout_seconds":1e3,"runtime":null}`))
	f.Add([]byte(`{"code":1e999}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, p := parsed[longArgs](string(raw))
		if p == nil && (args.Code == "" || args.Timeout < 1 || args.Timeout > 86400) {
			t.Errorf("%q gives %+v", raw, args)
		}
	})
}

func TestAnExitIsExplained(t *testing.T) {
	p := runProblem(contract.Execution{Status: contract.StatusFailed, Error: &contract.ExecutionError{EName: "SystemExit", EValue: "3"}})
	if p.Message != "the code raised “SystemExit: 3”" || !strings.Contains(p.Hint, "its variables are still there") {
		t.Errorf("%+v", p)
	}
}

func TestAMissingModuleIsInstalledOrUploaded(t *testing.T) {
	p := runProblem(contract.Execution{Status: contract.StatusFailed, Error: &contract.ExecutionError{EName: "ModuleNotFoundError", EValue: "No module named 'x'"}})
	if !strings.Contains(p.Hint, "install_packages") || !strings.Contains(p.Hint, "upload_to_colab") {
		t.Errorf("%+v", p)
	}
}
