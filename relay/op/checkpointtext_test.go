package op

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

// chunkedRecord is the record of a chunked run of 2000 iterations, with other fields.
func chunkedRecord(done int, status, more string) string {
	return fmt.Sprintf(`{"kind":"chunked","version":2,"key":"K","runtime":"work","n_iterations":2000,"batch_size":10,
		"completed":%d,"status":%q,"updated_at":"2026-01-01T12:00:00Z"%s}`, done, status, more)
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

// Values of iterations that ran unseen are lost, and the others must not look like all of them.
func TestGetCheckpointSaysOfHowManyIterationsItHasValues(t *testing.T) {
	h, _ := serveFake(t)
	for completed, want := range map[int]string{2: "--- values of result: 2\n0: 8\n1: 9\n", 24: "--- values of result: 2, of 24 completed iterations\n0: 8\n1: 9\n"} {
		record := chunkedRecord(completed, "finished", `,"results":[{"i":0,"value":8},{"i":1,"value":9}]`)
		if _, err := checkpoint.Save(h.relay.cfg.CheckpointDir, "train", json.RawMessage(record)); err != nil {
			t.Fatal(err)
		}
		if text := unfenced(h.call("get_checkpoint", map[string]any{"checkpoint_name": "train"}).Content[0].Text); !strings.Contains(text, want) {
			t.Errorf("%d iterations: %s", completed, text)
		}
	}
}

// unfenced returns a text without the random words at the ends of lines.
func unfenced(text string) string {
	return regexp.MustCompile(`(?m)^(--- .*) \[[a-z2-7]{6}\]$`).ReplaceAllString(text, "$1")
}
