package bootstrap

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
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

func TestTheCellUsesTheSecretsOfItsRuntimeOnly(t *testing.T) {
	tier.Long(t)
	r, _ := serve(t, standIn)
	for name, choose := range map[string]func(*vm){
		"the environment":               func(v *vm) { v.env["COLAB_RELAY_RUNTIME"] = "my-lab" },
		"the form, not the environment": func(v *vm) { v.fill("RUNTIME", `"my-lab"`); v.env["COLAB_RELAY_RUNTIME"] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t, r)
			choose(v)
			v.env["EXECUTOR_SECRET"], v.env["NGROK_DOMAIN"] = "the default runtime's secret", "default.ngrok.app"
			v.env["EXECUTOR_SECRET_MY_LAB"], v.env["NGROK_DOMAIN_MY_LAB"], v.env["NGROK_AUTHTOKEN"] = testSecret, "lab.ngrok.app", testToken
			v.run()
			if got, want := v.seen(), strings.Join([]string{testSecret, testToken, "lab.ngrok.app", "1", "--domain=lab.ngrok.app", ""}, "\n"); got != want {
				t.Errorf("the program saw\n%s\nwant\n%s", got, want)
			}
			delete(v.env, "EXECUTOR_SECRET_MY_LAB")
			if out := v.run(); !strings.Contains(out, "EXECUTOR_SECRET_MY_LAB: it is not in the environment; the executor generates one") {
				t.Errorf("without the runtime's secret the cell shows\n%s", out)
			}
			if got := v.seen(); !strings.HasPrefix(got, "\n") {
				t.Errorf("another runtime's secret was used:\n%s", got)
			}
		})
	}
}
