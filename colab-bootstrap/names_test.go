package bootstrap

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

func TestRelayAndCellGiveASecretTheSameName(t *testing.T) {
	runtimes := []string{"", "default", "Default", "lab", "LAB", "my-lab", "my.lab", "my_lab", "A1", "7", "a--b", strings.Repeat("x", 64)}
	_, rest, found := strings.Cut(template, "\ndef secret_name(")
	function, _, ended := strings.Cut(rest, "\n\n\n")
	if !found || !ended {
		t.Fatal("the cell has no secret_name")
	}
	given, err := json.Marshal(runtimes)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), stacks.Old(t).Python, "-c", "import json, re, sys\ndef secret_name("+function+
		"\nprint(json.dumps([secret_name('EXECUTOR_SECRET', name) for name in json.loads(sys.argv[1])]))", string(given))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var cells, ours []string
	if err := json.Unmarshal(out, &cells); err != nil {
		t.Fatal(err)
	}
	for _, name := range runtimes {
		ours = append(ours, SecretName("EXECUTOR_SECRET", name))
	}
	if !slices.Equal(cells, ours) {
		t.Errorf("the cell says %q, the relay %q", cells, ours)
	}
	if want := []string{"EXECUTOR_SECRET", "EXECUTOR_SECRET", "EXECUTOR_SECRET_DEFAULT", "EXECUTOR_SECRET_LAB"}; !slices.Equal(ours[:4], want) {
		t.Errorf("the names are %q", ours)
	}
}
