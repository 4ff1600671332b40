package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
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
		if *p != (Problem{Code: string(kind), Message: "m", Hint: "h"}) {
			t.Errorf("%+v", p)
		}
	}
	lost := fmt.Errorf("%w: %w", vm.ErrUnreachable, &client.Error{Kind: client.KindUnreachable, Message: "m", Hint: "h"})
	if p := problemOf(lost); p.Message != lost.Error() || p.Hint == "h" {
		t.Errorf("%+v", p)
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

func TestEveryToolReportsThatTheVMIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		// Each call has its own client: calls of one client wait for the first that requests
		// the instance.
		resolve := func(string) (runtimes.Runtime, error) { return directly(t, auth.GenerateSecret(), gone), nil }
		h := startHost(t, Config{Toolsets: toolsets.All, Resolve: resolve, CheckpointDir: t.TempDir(), Notebooks: sampleRoots(t)})
		answers := map[string]*pending{}
		for name, c := range calls {
			if c.method != "" {
				answers[name] = h.begin(name, json.RawMessage(c.args), nil)
			}
		}
		for name, ch := range answers {
			if o := h.await(name, ch).outcome(t); o.Error == nil || o.Error.Code != string(client.KindUnreachable) {
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

func TestEveryToolAnswersBadArguments(t *testing.T) {
	h, f := serveFake(t)
	cases := map[string][]string{
		"run_code_quick":        {`{}`, `{"code":[1]}`, `{"code":""}`, `{"code":null}`, `"code"`},
		"run_code_long":         {`{"code":"1","timeout_seconds":0}`, `{"code":"1","timeout_seconds":86401}`, `{"code":"1","timeout_seconds":"nan"}`},
		"get_execution":         {`{"execution_id":"e1","offset":1.5}`, `{"execution_id":"e1","offset":1e30}`},
		"run_chunked_operation": {`{"setup_code":"","loop_code":"1"}`, `{"checkpoint_name":"no such run"}`, `{"setup_code":"","loop_code":"1","n_iterations":1,"on_change":"maybe"}`, `{"setup_code":"","loop_code":"1","n_iterations":1,"on_stop":"rerun"}`},
		"install_packages":      {`{"packages":[1]}`, `{"packages":{"x":1}}`, `{"packages":"x","upgrade":"yes"}`},
	}
	for _, tool := range served(toolsets.All) {
		cases[tool.tool] = append(cases[tool.tool], `[1]`)
	}
	for name, all := range cases {
		for _, args := range all {
			o := h.call(name, json.RawMessage(args)).outcome(t)
			if o.Error == nil || o.Error.Code != codeBadRequest {
				t.Errorf("%s %s: %+v", name, args, o)
			}
		}
	}
	if f.count("POST", contract.PathExecutions) != 0 {
		t.Error("bad arguments reached the executor")
	}
}

// parsed reads arguments of the type A.
func parsed[A any](raw string) (args A, p *Problem) {
	_, p = parseArguments(argumentsOf(reflect.TypeFor[A]()), json.RawMessage(raw), reflect.ValueOf(&args).Elem())
	return args, p
}

func TestAllBadArgumentsAreReportedTogether(t *testing.T) {
	_, p := parsed[longArgs](`{"timeout_seconds":-5,"foo":1,"checkpoint_name":[2]}`)
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

func FuzzParseArguments(f *testing.F) {
	f.Add([]byte(`{"code":"x","timeout_seconds":1e3,"runtime_name":null}`))
	f.Add([]byte(`{"code":1e999}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, p := parsed[longArgs](string(raw))
		if p == nil && (args.Code == "" || args.Timeout < 1 || args.Timeout > 86400) {
			t.Errorf("%q gives %+v", raw, args)
		}
	})
}
