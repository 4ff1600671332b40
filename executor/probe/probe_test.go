package probe

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProbeOfThisMachine(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		dir := t.TempDir()
		p := New(Config{WorkDir: dir, Python: s.Python, Started: time.Now(), Getenv: os.Getenv, Limits: contract.Limits{MaxQueue: 64}})
		got, err := p.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Compute.CPUCount < 1 || got.Compute.MemoryTotalGB <= 0 || got.Platform.OS == "" || got.Platform.Kernel == "" {
			t.Errorf("compute %+v, platform %+v", got.Compute, got.Platform)
		}
		if len(got.Storage) == 0 || got.Storage[0].Path != dir || got.Storage[0].TotalGB <= 0 {
			t.Errorf("storage %+v", got.Storage)
		}
		if got.Python.IPyKernel == "" || got.Python.IPyKernel != got.Packages["ipykernel"] || got.Python.IPython == "" || got.Python.Version == "" {
			t.Errorf("python %+v, package ipykernel %q", got.Python, got.Packages["ipykernel"])
		}
		if got.Packages["numpy"] == "" {
			t.Errorf("no numpy among %d packages", len(got.Packages))
		}
		if got.Limits.MaxQueue != 64 || got.LoadedVariables != nil || got.SessionUptimeMinutes < 0 {
			t.Errorf("limits %+v, variables %v, uptime %v", got.Limits, got.LoadedVariables, got.SessionUptimeMinutes)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("not JSON: %v", err)
		}
	})
}

func TestPythonRunsWithoutSecretsInItsEnvironment(t *testing.T) {
	env := pythonEnvironment(func(name string) string { return "value of " + name })
	for _, entry := range env {
		if strings.Contains(entry, "SECRET") || strings.Contains(entry, "TOKEN") {
			t.Errorf("the environment holds %q", entry)
		}
	}
	if !slices.Contains(env, "PYTHONPATH=value of PYTHONPATH") {
		t.Errorf("no PYTHONPATH in %q", env)
	}
}
