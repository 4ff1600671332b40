package kernelstate

import (
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// standIn returns an environment in which testdata/torch can be imported and no compiled
// file is written beside it.
func standIn(t *testing.T) []string {
	t.Helper()
	path, err := filepath.Abs("testdata")
	must(t, err)
	return []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"}
}

func TestGPUTensorsAreRestoredToAGPUIfThereIsOne(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const facts = `print(w.device, w.device.index, part.device, part.values().tolist(), part.memory is w.memory, cpu.device, raw.device.type, len(raw.memory))`
	dir := t.TempDir()
	first := newVM(t, stacks.Old(t), append(standIn(t), "TORCH_GPU=2")...)
	first.run("import torch\nw = torch.arange(10, 'cuda:1')\npart = w[4:6]\ncpu = torch.arange(3)\nraw = w.untyped_storage()")
	saved := first.save(dir, "gpu")
	if len(saved.Manifest.Skipped) > 0 {
		t.Errorf("skipped %+v", saved.Manifest.Skipped)
	}
	for name, test := range map[string]struct{ gpus, want string }{
		"as many": {"2", "cuda:1 1 cuda:1 [4.0, 5.0] True cpu cuda 40\n"},
		"fewer":   {"1", "cuda:0 0 cuda:0 [4.0, 5.0] True cpu cuda 40\n"},
		"none":    {"", "cpu None cpu [4.0, 5.0] True cpu cpu 40\n"},
	} {
		t.Run(name, func(t *testing.T) {
			first.forget()
			first.run("import os; os.environ.pop('TORCH_GPU', 0)\nif '" + test.gpus + "': os.environ['TORCH_GPU'] = '" + test.gpus + "'")
			r := first.restore(dir, "gpu")
			if got := first.run(facts); got != test.want || len(r.Loaded.Failed) > 0 {
				t.Errorf("got %q, want %q; failed %+v", got, test.want, r.Loaded.Failed)
			}
			warned := len(r.Loaded.Warnings) == 1 && strings.Contains(r.Loaded.Warnings[0], "no GPU")
			if warned != (test.gpus == "") {
				t.Errorf("warnings %q", r.Loaded.Warnings)
			}
		})
	}
}
