package probe

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
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

func TestProbeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := New(Config{WorkDir: t.TempDir(), Python: "/none", Started: time.Now(), Getenv: os.Getenv})
	if _, err := p.Probe(ctx); err == nil {
		t.Error("no error")
	}
}

func TestAMissingPythonDoesNotAffectTheRest(t *testing.T) {
	p := New(Config{WorkDir: t.TempDir(), Python: "/none/python", Started: time.Now(), Getenv: os.Getenv})
	got, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Python.Executable != "/none/python" || got.Packages == nil || got.Compute.CPUCount < 1 {
		t.Errorf("python %+v, packages %v, compute %+v", got.Python, got.Packages, got.Compute)
	}
}

func TestPackagesAreListedAgainOnlyAfterAnInstall(t *testing.T) {
	site := t.TempDir()
	asked := filepath.Join(t.TempDir(), "asked")
	python := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\necho >>" + asked + "\nPYTHONPATH=" + site + " exec '" + stacks.Old(t).Python + `' "$@"` + "\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := New(Config{Python: python, Getenv: os.Getenv})
	times := func() int { b, _ := os.ReadFile(asked); return len(b) }

	p.pythonAndPackages(t.Context())
	if _, packages := p.pythonAndPackages(t.Context()); times() != 1 || packages["numpy"] == "" {
		t.Fatalf("asked %d times, numpy %q", times(), packages["numpy"])
	}
	info := filepath.Join(site, "fresh-1.2.dist-info")
	if err := os.Mkdir(info, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(info, "METADATA"), []byte("Name: fresh\nVersion: 1.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, packages := p.pythonAndPackages(t.Context()); times() != 2 || packages["fresh"] != "1.2" {
		t.Errorf("asked %d times, fresh %q", times(), packages["fresh"])
	}
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

func TestRecommendationsNameScarceResources(t *testing.T) {
	good := contract.Probe{
		Platform: contract.Platform{Name: "colab"},
		GPU:      contract.GPU{Available: true, Devices: []contract.GPUDevice{{Name: "T4", MemoryUsedMB: ptr(1.0), MemoryTotalMB: ptr(100.0)}}},
		Compute:  contract.Compute{MemoryTotalGB: 12, MemoryAvailableGB: 10},
		Storage:  []contract.Disk{{Path: "/content", FreeGB: 50}},
	}
	if got := recommendations(good, sessionLimit{}); len(got) != 0 {
		t.Errorf("a machine with enough of everything gets %q", got)
	}
	bad := contract.Probe{
		Platform: contract.Platform{Name: "colab"},
		Compute:  contract.Compute{MemoryTotalGB: 12, MemoryAvailableGB: 0.7},
		Storage:  []contract.Disk{{Path: "/content", FreeGB: 0.4}},
	}
	all := strings.Join(recommendations(bad, publishedLimit(bad)), "\n")
	for _, want := range []string{"has no GPU", "Runtime > Change runtime type > T4 GPU", "0.7 GB of memory", "0.4 GB of disk is free under /content", "at most 12 hours"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in:\n%s", want, all)
		}
	}
	full := good
	full.GPU.Devices = []contract.GPUDevice{{Name: "T4", MemoryUsedMB: ptr(95.0), MemoryTotalMB: ptr(100.0)}}
	if got := recommendations(full, sessionLimit{}); len(got) != 1 || !strings.Contains(got[0], "GPU T4 is nearly full") {
		t.Errorf("a full GPU gets %q", got)
	}
}
