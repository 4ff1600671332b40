package dataflow

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/kernelpy"
	"colabrelay/shared/stacks"
)

const secret = "a secret of the tests of relay/dataflow, 32 bytes or more"

// pool has the executors, with real kernels, that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// kernel is a real kernel in a real executor.
type kernel struct {
	*client.Client
	t *testing.T
}

func borrow(t *testing.T, s stacks.Stack) *kernel {
	t.Helper()
	key, err := auth.NewSecret(secret)
	must(t, err)
	c, err := client.New(client.Config{BaseURL: pool.Borrow(t, s.Python).Ready.LocalURL, Secret: key})
	must(t, err)
	t.Cleanup(c.Close)
	return &kernel{c, t}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// analyse returns the facts of each source.
func (k *kernel) analyse(sources []string) []Facts {
	k.t.Helper()
	facts, err := Analyse(k.t.Context(), k, sources)
	must(k.t, err)
	return facts
}

// run runs code as a user would and returns what it printed.
func (k *kernel) run(code string) string {
	k.t.Helper()
	e, err := k.Submit(k.t.Context(), contract.Submit{Code: code, WaitSeconds: 50, TimeoutSeconds: 600})
	must(k.t, err)
	var text strings.Builder
	e, err = client.Follow(k.t.Context(), k, e, client.FollowOptions{Visit: func(e contract.Execution) bool {
		for _, event := range e.Events {
			text.WriteString(event.Text)
		}
		return true
	}})
	must(k.t, err)
	if e.Status != contract.StatusSucceeded {
		k.t.Fatalf("the code ended as %s: %+v", e.Status, e.Error)
	}
	return text.String()
}

//go:embed testdata/world.py
var world string

// step is one cell that world.py runs.
type step struct {
	Cell  string `json:"cell"`
	Fails bool   `json:"fails,omitempty"`
	Show  bool   `json:"show,omitempty"` // report the values after it
}

// played is what became of steps.
type played struct {
	Statuses []string            // the exceptions' names
	Values   []map[string]string // by name
}

// play runs each list of steps in a namespace of its own.
func (k *kernel) play(jobs [][]step) []played {
	k.t.Helper()
	text, err := json.Marshal(jobs)
	must(k.t, err)
	code := world + "\nimport base64, zlib\nprint(play_all(zlib.decompress(base64.b64decode('" + kernelpy.Packed(string(text)) + "')).decode()))"
	var found []played
	must(k.t, json.Unmarshal([]byte(k.run(code)), &found))
	if len(found) != len(jobs) {
		k.t.Fatalf("%d of %d notebooks ran", len(found), len(jobs))
	}
	return found
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
