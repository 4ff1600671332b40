package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

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
