package probe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProbeOfThisMachine(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		dir := t.TempDir()
		p := New(Config{WorkDir: dir, Python: s.Python, Started: time.Now(), Environ: os.Environ(), Limits: contract.Limits{MaxQueue: 64}})
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

func ptr[T any](v T) *T { return &v }

func TestGPUsAreReadFieldByField(t *testing.T) {
	for name, test := range map[string]struct {
		table string
		want  []contract.GPUDevice
	}{
		"a T4": {
			"0, Tesla T4, 3, 15360, 12, 0\n",
			[]contract.GPUDevice{{Index: ptr(0), Name: "Tesla T4", MemoryUsedMB: ptr(3.0), MemoryTotalMB: ptr(15360.0), UtilizationPct: ptr(12.0)}},
		},
		"two, one without figures": {
			"0, A100, [N/A], 40960, [N/A], [N/A]\r\n[N/A], B, , x, NaN, 0",
			[]contract.GPUDevice{{Index: ptr(0), Name: "A100", MemoryTotalMB: ptr(40960.0)}, {Name: "B"}},
		},
		"a comma in its name": {
			"1, NVIDIA, Corp. Device, 1, 2, 3, 4\n",
			[]contract.GPUDevice{{Index: ptr(1), Name: "NVIDIA, Corp. Device", MemoryUsedMB: ptr(1.0), MemoryTotalMB: ptr(2.0), UtilizationPct: ptr(3.0)}},
		},
		"a message": {"No devices were found\n", []contract.GPUDevice{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, parseGPUs([]byte(test.table))); diff != "" {
				t.Errorf("parseGPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// nvidiaSMI puts a script with that name first on PATH.
func nvidiaSMI(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestGPUsAreReportedByNvidiaSMI(t *testing.T) {
	nvidiaSMI(t, `[ "$*" = "--query-gpu=index,name,memory.used,memory.total,utilization.gpu,utilization.memory --format=csv,nounits,noheader" ] && echo "0, Tesla T4, 3, 15360, 0, 0"`)
	root := tree(map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.3.0\n",
	})
	zero, used, total := 0.0, 3.0, 15360.0
	want := contract.GPU{Available: true, Driver: "535.104.05", Devices: []contract.GPUDevice{
		{Index: new(int), Name: "Tesla T4", MemoryUsedMB: &used, MemoryTotalMB: &total, UtilizationPct: &zero},
	}}
	if diff := cmp.Diff(want, gpu(t.Context(), nil, root)); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
}

func TestSessionMinutesLeftIsThePublishedLimitLessTheUptime(t *testing.T) {
	limit := sessionLimit{most: 12 * time.Hour}
	for name, tc := range map[string]struct {
		limit  sessionLimit
		uptime time.Duration
		want   float64 // below 0 for none
	}{
		"at the start":       {limit, 0, 720},
		"near the end":       {limit, 12*time.Hour - 25*time.Minute, 25},
		"outlived":           {limit, 13 * time.Hour, -1}, // a paid plan
		"no published limit": {sessionLimit{}, time.Hour, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{})
			p.session = func() session { return session{time.Now().Add(-tc.uptime), tc.limit} }
			got := p.SessionMinutesLeft()
			if (got == nil) != (tc.want < 0) || got != nil && *got != tc.want {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		})
	}
}

func TestTheSessionsLimitIsThePlatforms(t *testing.T) {
	gpu := fstest.MapFS{"dev/nvidia0": &fstest.MapFile{}, "dev/nvidiactl": &fstest.MapFile{}}
	for name, tc := range map[string]struct {
		variable string
		root     fstest.MapFS
		want     time.Duration
	}{
		"Colab":               {"COLAB_RELEASE_TAG", gpu, 12 * time.Hour},
		"Kaggle":              {"KAGGLE_KERNEL_RUN_TYPE", fstest.MapFS{}, 12 * time.Hour},
		"Kaggle with a GPU":   {"KAGGLE_KERNEL_RUN_TYPE", gpu, 9 * time.Hour},
		"a machine with none": {"HOME", gpu, 0},
	} {
		p := New(Config{Environ: []string{tc.variable + "=1"}, Started: time.Now()})
		p.root = tc.root
		if got := p.inspectSession(); got.limit.most != tc.want || got.start.After(time.Now()) {
			t.Errorf("%s: %v from %v on", name, got.limit.most, got.start)
		}
	}
}

func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, content := range files {
		fs[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fs
}

func TestCgroupsAreThoseWithALimit(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []cgroup
	}{
		"version 2 in a container": {
			map[string]string{
				"proc/self/cgroup":             "0::/\n",
				"sys/fs/cgroup/memory.max":     "1000\n",
				"sys/fs/cgroup/memory.current": "700\n",
				"sys/fs/cgroup/memory.stat":    "anon 100\ninactive_file 300\nactive_file 5\n",
			},
			[]cgroup{{limit: 1000, used: 400}},
		},
		"version 2, limits at two levels": {
			map[string]string{
				"proc/self/cgroup":                 "0::/a/b\n",
				"sys/fs/cgroup/a/b/memory.max":     "500\n",
				"sys/fs/cgroup/a/b/memory.current": "100\n",
				"sys/fs/cgroup/a/memory.max":       "800\n",
				"sys/fs/cgroup/a/memory.current":   "790\n",
			},
			[]cgroup{{500, 100}, {800, 790}},
		},
		"version 1, the host's path not mounted": {
			map[string]string{
				"proc/self/cgroup":                           "4:memory:/docker/0123\n1:cpu:/docker/0123\n0::/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "1500\n",
				"sys/fs/cgroup/memory/memory.stat":           "inactive_file 1\ntotal_inactive_file 500\n",
			},
			[]cgroup{{2000, 1000}},
		},
		"more cache than use": {
			map[string]string{
				"proc/self/cgroup":             "0::/\n",
				"sys/fs/cgroup/memory.max":     "1000\n",
				"sys/fs/cgroup/memory.current": "10\n",
				"sys/fs/cgroup/memory.stat":    "inactive_file 300\n",
			},
			[]cgroup{{1000, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(test.files)
			got := limitedLevels(root).read(root)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(cgroup{})); diff != "" {
				t.Errorf("cgroups (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTightestLimitCounts(t *testing.T) {
	machine := Mem{Total: 1000, Used: 400, Available: 600}
	for name, test := range map[string]struct {
		groups []cgroup
		want   Mem
	}{
		"no limit":                {nil, machine},
		"a limit below it":        {[]cgroup{{limit: 500, used: 100}}, Mem{Total: 500, Used: 100, Available: 400}},
		"the machine is fuller":   {[]cgroup{{limit: 900, used: 100}}, Mem{Total: 900, Used: 300, Available: 600}},
		"the outer one is fuller": {[]cgroup{{500, 100}, {800, 790}}, Mem{Total: 500, Used: 490, Available: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := machine.within(test.groups); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestPlatformsAreDetectedInThisOrder(t *testing.T) {
	type env = map[string]string
	for name, test := range map[string]struct {
		env   env
		files []string
		want  contract.Platform
	}{
		"kaggle, though colab's library is there": {
			env{"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "COLAB_RELEASE_TAG": "release"},
			[]string{".dockerenv", "var/colab/hostname"},
			contract.Platform{Name: "kaggle", Container: true},
		},
		"colab by file":        {nil, []string{"var/colab/hostname", ".dockerenv"}, contract.Platform{Name: "colab", Container: true}},
		"colab by environment": {env{"COLAB_RELEASE_TAG": "release-colab"}, nil, contract.Platform{Name: "colab"}},
		"sagemaker studio lab": {nil, []string{"home/studio-lab-user/x"}, contract.Platform{Name: "sagemaker"}},
		"not codespaces":       {env{"CODESPACES": "false"}, nil, contract.Platform{Name: "machine"}},
		"docker":               {nil, []string{".dockerenv"}, contract.Platform{Name: "container", Container: true}},
		"a machine":            {nil, nil, contract.Platform{Name: "machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for _, f := range test.files {
				files[f] = ""
			}
			got := Platform(func(name string) string { return test.env[name] }, tree(files))
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
