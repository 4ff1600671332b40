package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/hint"
	"colabrelay/relay/runtimes"
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
		"notebook that failed": {fmt.Sprintf(onePlan, "failed"), `is the record of runs of the notebook /home/n.ipynb on runtime "work".
The last run of run_notebook, begun at 2026-01-01T12:00:00Z: failed: 2 cells; 1 succeeded, 1 failed in 3.0 s.
Next step: correct the cells with update_cell, then call run_notebook(notebook_path="/home/n.ipynb", cells="dirty").
The complete file
--- cells that did not succeed
cell 1 (id b) failed: ValueError: x Next step: y
--- end
`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := checkpoint.Save(dir, "c", json.RawMessage(test.data)); err != nil {
				t.Fatal(err)
			}
			got := h.call("get_checkpoint", map[string]any{"checkpoint_name": "c"}).Content[0].Text
			want := `Checkpoint "c", written at, ` + test.want
			if plain := writtenAt.ReplaceAllStringFunc(unfenced(got), func(s string) string {
				return map[byte]string{'w': "written at", 'T': "The complete file"}[s[0]]
			}); plain != want {
				t.Errorf("got\n%s\nwant\n%s", plain, want)
			}
		})
	}
}

// unfenced returns a text without the random words at the ends of lines.
func unfenced(text string) string {
	return regexp.MustCompile(`(?m)^(--- .*) \[[a-z2-7]{6}\]$`).ReplaceAllString(text, "$1")
}

func TestADamagedCheckpointSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	for data, want := range map[string]string{
		chunkedRecord(2, "running", `,"n_iterations":0`):                 `on_change="restart"`,
		`{"kind":"notebook","version":3,"run":{"plan":[{"index":"x"}]}}`: "move this file away",
		`{"success":true,"status":"succeeded","stdout":7}`:               "checkpoint_name",
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000):        "checkpoint_name",
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
