package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/hint"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// writtenAt is the part of a text that differs from test to test.
var writtenAt = regexp.MustCompile(`written at [^ ,]+|The complete file: .*`)

// chunkedRecord is the record of a chunked run of 2000 iterations, with other fields.
func chunkedRecord(done int, status, more string) string {
	ranges := "[]"
	if done > 0 {
		ranges = fmt.Sprintf(`[{"from":0,"to":%d,"kernel_id":"k","instance_id":"i"}]`, done)
	}
	return fmt.Sprintf(`{"kind":"chunked","version":2,"key":"K","runtime":"work","n_iterations":2000,"batch_size":10,"setup_sha256":%q,"loop_sha256":%q,
		"completed":%d,"status":%q,"ranges":%s,"updated_at":"2026-01-01T12:00:00Z"%s}`, noCode, noCode, done, status, ranges, more)
}

// noCode is the hash of no code, copyAt the fields of a copy before iteration 100.
const (
	noCode = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	copyAt = `"path":"/tmp/colab-relay-state-x/data.state","bytes":1,"sha256":"` + noCode + `","done":100,"code":"` + noCode + " " + noCode + `"`
)

const onePlan = `{"kind":"notebook","version":3,"path":"/home/n.ipynb","runtime":"work","run":{"run_id":"r","status":%q,"started_at":"2026-01-01T12:00:00Z","plan":[
	{"cell_id":"a","index":0,"status":"succeeded","attempts":[{"seconds":2}]},
	{"cell_id":"b","index":1,"status":"failed","attempts":[{"seconds":1,"error":{"ename":"ValueError","evalue":"x\nNext step: y"}}]}]}}`

func TestGetCheckpointSpeaksInSentences(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	for name, test := range map[string]struct{ data, want string }{
		"running": {
			chunkedRecord(120, "running", `,"timed":120,"mean_seconds":0.4,
				"results":[{"i":1,"value":{"a": 1}},{"i":118,"value":null,"omitted":"over 64 KiB"},{"i":119,"value":"x\nNext step: y"}],
				"recorded":110,"carried":["model","total"],"kept":{"version":"v",`+copyAt+`},
				"job":{"job_id":"j","state":"running","accepted":true},"last_output":"\u001b[31mone\ntwo\nthree\nfour\nfive\nNext step: six\n"`),
			`is a chunked run on runtime "work": running.
120 of 2000 iterations done (6%), last confirmed at 2026-01-01T12:00:00Z; 1880 remain, about 12m32s at 0.4 s each.
Next step: run_chunked_operation with checkpoint_name="c" reads on, and continues the run if it does not run any more.
If the VM is alive, it continues the run by itself; its present state could not be read (the run is on another runtime).
The complete file
--- values of result: 3
1: {"a":1}
118: not saved: over 64 KiB
119: "x\nNext step: y"
--- variables that iterations pass on
model, total: a copy from before iteration 100 is on this computer, for a new kernel
--- printed last
two
three
four
five
Next step: six
--- end
`,
		},
		"begun": {chunkedRecord(0, "running", ""), `is a chunked run on runtime "work": running.
0 of 2000 iterations done (0%).
Next step: run_chunked_operation with checkpoint_name="c" reads on, and continues the run if it does not run any more.
`},
		"failed": {chunkedRecord(17, "failed", `,"failure":{"status":"failed","iteration":17,"message":"ValueError: bad\nNext step: y"},"results_dropped":3,
				"carried":["f"],"unkept":[{"name":"f","reason":"it cannot be saved"}]`), `is a chunked run on runtime "work": failed.
17 of 2000 iterations done (0.9%), last confirmed at 2026-01-01T12:00:00Z.
It stopped at iteration 17: “ValueError: bad Next step: y”
Values of result that were not saved, because all together may have 16 MiB: 3
Next step: run_chunked_operation with checkpoint_name="c" tries iteration 17 again; with corrected code add on_change="continue".
The complete file
--- variables that iterations pass on
f: not kept (f: “it cannot be saved”)
--- end
`},
		"lost": {chunkedRecord(3, "variables_lost", `,"failure":{"status":"variables_lost","message":"the kernel no longer has f"},"carried":["f"]`), `is a chunked run on runtime "work": variables_lost.
3 of 2000 iterations done (0.2%), last confirmed at 2026-01-01T12:00:00Z.
It stopped: “the kernel no longer has f”
Next step: restore_kernel_state, or run_chunked_operation with checkpoint_name="c" and on_stop="continue" or on_change="restart".
The complete file
--- variables that iterations pass on
f: not kept yet
--- end
`},
		"finished": {chunkedRecord(2000, "finished", ""), `is a chunked run on runtime "work": finished.
2000 of 2000 iterations done (100%), last confirmed at 2026-01-01T12:00:00Z.
`},
		"notebook that failed": {fmt.Sprintf(onePlan, "failed"), `is the record of runs of the notebook /home/n.ipynb on runtime "work".
The last run of run_notebook, begun at 2026-01-01T12:00:00Z: failed: 2 cells; 1 succeeded, 1 failed in 3.0 s.
Next step: correct the cells with update_cell, then call run_notebook(notebook_path="/home/n.ipynb", cells="dirty").
The complete file
--- cells that did not succeed
cell 1 (id b) failed: ValueError: x Next step: y
--- end
`},
		"notebook that runs": {strings.Replace(fmt.Sprintf(onePlan, "running"), `"failed"`, `"running"`, 1), `is the record of runs of the notebook /home/n.ipynb on runtime "work".
The last run of run_notebook, begun at 2026-01-01T12:00:00Z: running: 2 cells; 1 succeeded, 1 running in 3.0 s.
Next step: run_notebook with notebook_path="/home/n.ipynb" and the same arguments as before continues it.
`},
		"cells of a notebook": {`{"kind":"notebook","version":3,"path":"/home/n.ipynb","runtime":"work"}`, `is the record of runs of the notebook /home/n.ipynb on runtime "work".
Single cells of it were run; run_notebook was not called for it.
`},
		"of another release": {`{"kind":"new"}`, "is of a kind that this release cannot describe.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := checkpoint.Save(dir, "c", json.RawMessage(test.data)); err != nil {
				t.Fatal(err)
			}
			got := h.call("get_checkpoint", map[string]any{"checkpoint_name": "c"}).Content[0].Text
			want := `Checkpoint "c", written at, ` + test.want
			if !strings.Contains(want, "The complete file") {
				want += "The complete file\n"
			}
			if plain := writtenAt.ReplaceAllStringFunc(unfenced(got), func(s string) string {
				return map[byte]string{'w': "written at", 'T': "The complete file"}[s[0]]
			}); plain != want {
				t.Errorf("got\n%s\nwant\n%s", plain, want)
			}
			if !strings.Contains(got, "\nThe complete file: "+checkpoint.Path(dir, "c")+"\n") {
				t.Error(got)
			}
		})
	}
}

// unfenced returns a text without the random words at the ends of lines.
func unfenced(text string) string {
	return regexp.MustCompile(`(?m)^(--- .*) \[[a-z2-7]{6}\]$`).ReplaceAllString(text, "$1")
}

func TestAKeptAnswerIsShownAsItWas(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	run := f.run("e1")
	run.print("one\n")
	run.set(func(e *contract.Execution) { e.Error = &contract.ExecutionError{EName: "ValueError", EValue: "bad"} })
	run.end(contract.StatusFailed)
	shown := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "mine"}).Content[0].Text
	shown, printed, ok := strings.Cut(unfenced(shown), "Checkpoint: ")
	kept := h.call("get_checkpoint", map[string]any{"checkpoint_name": "mine"}).Content[0].Text
	head, rest, _ := strings.Cut(unfenced(kept), "\n")
	_, printed, _ = strings.Cut(printed, "\n")
	if !ok || !strings.HasSuffix(head, `is a kept answer of run_code_long on runtime "test":`) || !strings.HasPrefix(rest, shown+"The complete file: ") || !strings.HasSuffix(rest, "\n"+printed) || !strings.Contains(rest, "Error (failed): the code raised “ValueError: bad”") {
		t.Errorf("%s\n\n%s", shown, kept)
	}
}

func TestADamagedCheckpointSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	for data, want := range map[string]string{
		chunkedRecord(2, "running", `,"n_iterations":0`):                 `on_change="restart"`,
		`{"kind":"chunked","version":9}`:                                 `on_change="restart"`,
		`{"kind":"notebook","version":3,"run":{"plan":[{"index":"x"}]}}`: "move this file away",
		`{"success":true,"status":"succeeded","stdout":7}`:               "checkpoint_name",
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000):        "checkpoint_name",
		`{"status":"x","outputs":{}}`:                                    "checkpoint_name",
	} {
		file := fmt.Sprintf(`{"operation":"c","timestamp":"2026-01-01T12:00:00Z","data":%s}`, data)
		if err := os.WriteFile(checkpoint.Path(dir, "c"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		r := h.call("get_checkpoint", map[string]any{"checkpoint_name": "c"})
		if text := r.Content[0].Text; !r.IsError || !strings.HasPrefix(text, "Error ("+hint.CodeDamaged+"): \"c\" in "+checkpoint.Path(dir, "c")+": ") || !strings.Contains(text, "Next step: ") || !strings.Contains(text, want) || len(text) > 1000 {
			t.Errorf("%.80s: %s", data, text)
		}
	}
}

func TestTheTextOfACheckpointIsBounded(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	long := strings.Repeat("long ", 20_000)
	var plan []string
	for i := range 50 {
		plan = append(plan, fmt.Sprintf(`{"cell_id":"c%d","index":%d,"status":"failed","attempts":[{"error":{"ename":"E","evalue":%q}}]}`, i, i, long[:3000]))
	}
	var values []string
	for i := range 2000 {
		values = append(values, fmt.Sprintf(`{"i":%d,"value":%d}`, i, i))
	}
	for data, want := range map[string]string{
		chunkedRecord(2, "failed", fmt.Sprintf(`,"failure":{"message":%q},"results":[{"i":0,"value":%q},{"i":1,"value":%q}],"last_output":%q,"carries":{"names":{%q:["set"]}}`, long, long, long[:3000], long, long)): "\n1: ",
		`{"kind":"notebook","version":3,"path":"/n.ipynb","run":{"run_id":"r","status":"failed","plan":[` + strings.Join(plan, ",") + `]}}`:                                                                           "and 30 more cells\n",
		fmt.Sprintf(`{"success":true,"status":"succeeded","stdout":%q}`, long):                                                                                                                                        "characters omitted",
		chunkedRecord(2000, "finished", `,"results":[`+strings.Join(values, ",")+`]`):                                                                                                                                 "values of result: 2000; the last ",
	} {
		if _, err := checkpoint.Save(dir, "c", json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
		text := h.call("get_checkpoint", map[string]any{"checkpoint_name": "c"}).Content[0].Text
		if len(text) > render.DefaultTextLimit+100 || !strings.Contains(text, "The complete file: ") {
			t.Errorf("%.60s: %d bytes: %s", data, len(text), text)
		}
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
