package kernelpy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"colabrelay/shared/stacks"
)

// python runs a program of testdata with the package importable, gives it in as JSON
// and reads what it prints as JSON into out.
func python(t *testing.T, s stacks.Stack, program string, in, out any) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), s.Python, "-B", filepath.Join("testdata", program))
	cmd.Env = append(os.Environ(), "PYTHONPATH=.")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		t.Fatalf("%s answered %q: %v", program, answer, err)
	}
}

// body is code and what its iterations carry: names, and the word "opaque" where more
// may be carried than can be told.
type body struct{ name, setup, loop, want string }

// check holds bodies against what a program of testdata tells of them.
func check(t *testing.T, program string, bodies []body) {
	t.Helper()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		var asked [][2]string
		for _, b := range bodies {
			asked = append(asked, [2]string{b.setup, b.loop})
		}
		var got []struct {
			Names  map[string][]string
			Opaque []string
			Told   string
		}
		python(t, s, program, asked, &got)
		if len(got) != len(bodies) {
			t.Fatalf("%d answers to %d bodies", len(got), len(bodies))
		}
		for i, b := range bodies {
			if got[i].Told != b.want {
				t.Errorf("%s: carries %q, want %q (%v %q)\n%s\n---\n%s", b.name, got[i].Told, b.want, got[i].Names, got[i].Opaque, b.setup, b.loop)
			}
		}
	})
}
