package kernelstate

import (
	"os"
	"path/filepath"
	"slices"
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
	checkSkipped(t, saved.Manifest.Skipped, nil)
	for name, test := range map[string]struct{ gpus, want string }{
		"as many": {"2", "cuda:1 1 cuda:1 [4.0, 5.0] True cpu cuda 40\n"},
		"fewer":   {"1", "cuda:0 0 cuda:0 [4.0, 5.0] True cpu cuda 40\n"},
		"none":    {"", "cpu None cpu [4.0, 5.0] True cpu cpu 40\n"},
	} {
		t.Run(name, func(t *testing.T) {
			first.forget()
			first.run("import os; os.environ.pop('TORCH_GPU', 0)\nif '" + test.gpus + "': os.environ['TORCH_GPU'] = '" + test.gpus + "'")
			r := first.restore(dir, "gpu")
			checkSkipped(t, r.Loaded.Failed, nil)
			if got := first.run(facts); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			warned := len(r.Loaded.Warnings) == 1 && strings.Contains(r.Loaded.Warnings[0], "no GPU")
			if warned != (test.gpus == "") {
				t.Errorf("warnings %q", r.Loaded.Warnings)
			}
		})
	}
}

func TestManyVariablesAreAllReported(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("for n in range(3000): globals()['variable_%d' % n] = n")
	saved := v.save(dir, "many") // the report is so long that it is a blob
	if n := len(saved.Manifest.Variables); n != 3001 || saved.Manifest.VariableCount != n {
		t.Errorf("%d listed of %d", n, saved.Manifest.VariableCount)
	}
}

// What is saved and loaded is tested with the Python package. This is how it is reported.
func TestOmissionsAndWarningsAreReported(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	helper := filepath.Join(v.dir, "helper.py")
	must(t, os.WriteFile(helper, []byte("class Thing: pass\n"), 0o600))
	v.run("import helper\nclass Fails:\n  def __setstate__(self, state): raise ValueError('no')\nfails = Fails()\nfails.x = 1\n" +
		"generator, thing, x = (i for i in range(3)), helper.Thing(), 'saved'")
	saved := v.save(dir, "part")
	checkSkipped(t, saved.Manifest.Skipped, map[string]string{"generator": ""})
	if want := []string{`"fails" was saved, but loading it was tried and failed: ValueError: no`}; !slices.Equal(saved.Warnings, want) {
		t.Errorf("warnings %q, want %q", saved.Warnings, want)
	}
	v.forget()
	must(t, os.Remove(helper))
	v.run("import sys, shutil, importlib\ndel sys.modules['helper']\nshutil.rmtree('__pycache__')\nimportlib.invalidate_caches()\n%reset -f\nx = 'old'")
	r := v.restore(dir, "part")
	const missing = "ModuleNotFoundError: No module named 'helper'"
	checkSkipped(t, r.Loaded.Failed, map[string]string{"helper": missing, "thing": missing, "fails": "ValueError: no"})
	if !slices.Equal(r.Loaded.Overwritten, []string{"x"}) || v.run("print(x)") != "saved\n" {
		t.Errorf("overwritten: %q", r.Loaded.Overwritten)
	}
}
