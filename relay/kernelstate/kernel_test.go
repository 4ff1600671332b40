package kernelstate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
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

func TestLargeArrayIsNotInMemoryTwice(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const peak = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0])"
	for _, pickler := range []string{"dill", "cloudpickle"} {
		t.Run(pickler, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first, second := borrowVM(t, stacks.Old(t)), borrowVM(t, stacks.Old(t))
			for _, v := range []*vm{first, second} {
				v.newKernel()
				v.run(without(picklers[pickler]...) + "\nimport numpy as np, pandas as pd")
			}
			first.run("a = np.ones(96 << 17)\nf = pd.DataFrame({'x': a})") // 96 MiB
			before := kilobytes(t, first.run(peak))
			saved := first.save(dir, "large")
			if grown := kilobytes(t, first.run(peak)) - before; grown > 32<<10 {
				t.Errorf("saving 96 MiB took %d KiB more", grown)
			}
			before = kilobytes(t, second.run(peak))
			second.restore(dir, "large")
			data := int(saved.Manifest.Bytes >> 10)
			if grown := kilobytes(t, second.run(peak)) - before; grown > data+32<<10 {
				t.Errorf("restoring %d KiB took %d KiB", data, grown)
			}
		})
	}
}

func kilobytes(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestProgressOfChunkedRunsIsRestored(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	v := borrowVM(t, stacks.Old(t))
	v.run("import sys, types\nm = sys.modules['colab_relay_runs'] = types.ModuleType('colab_relay_runs')\nm.runs = {'k': {'setup': 'h', 'done': 7}}\ndel m\nx = 1")
	v.save(dir, "runs")
	v.run("del sys.modules['colab_relay_runs']")
	v.forget()
	v.restore(dir, "runs")
	if got := v.run("print(sys.modules['colab_relay_runs'].runs)"); got != "{'k': {'setup': 'h', 'done': 7}}\n" {
		t.Error(got)
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

func TestNothingUserDefinedBreaksTheSave(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os, tempfile\nos.environ['KEPT_TMPDIR'] = os.environ.get('TMPDIR', '')\nos.environ['TMPDIR'] = tempfile.tempdir = '/var/tmp'\ndel os, tempfile") // is not served
	defer v.run("import os, tempfile\nos.environ['TMPDIR'] = os.environ.pop('KEPT_TMPDIR')\ntempfile.tempdir = None\ndel os, tempfile")                            // for the next test
	v.run("list = dict = print = type = len = None\nopen = 3\nx = 5\nglobals()['odd name\\ud800'] = 1\nglobals()['quote\"'] = 2")
	saved := v.save(dir, "shadowed")
	if saved.Manifest.VariableCount != 9 {
		t.Errorf("%+v", saved.Manifest.Variables)
	}
	second := borrowVM(t, stacks.Old(t))
	r := second.restore(dir, "shadowed")
	checkSkipped(t, r.Loaded.Failed, nil)
	e, _ := second.try("assert x == 5 and list is None and globals()['odd name\\ud800'] == 1")
	if e.Status != contract.StatusSucceeded {
		t.Errorf("%+v", e.Error)
	}
}

func TestVariablesThatDoNotFitOnTheVMAreReported(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := newVM(t, stacks.Old(t)), t.TempDir()
	v.run("import numpy as np\nsmall = [1]\nlarge = np.ones(4 << 20)\nalso_large = bytes(40 << 20)")
	// A limit of 10 MiB for files simulates a full disk.
	v.run("import resource, signal, shutil, collections\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, resource.RLIM_INFINITY))")
	saved := v.save(dir, "full")
	checkSkipped(t, saved.Manifest.Skipped, map[string]string{"large": "", "also_large": ""})

	v.run("resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\nusage = shutil.disk_usage\n" +
		"shutil.disk_usage = lambda path: usage(path)._replace(free=80 << 20)\ndel also_large")
	saved = v.save(dir, "full")
	checkSkipped(t, saved.Manifest.Skipped, map[string]string{"large": "it takes 32 MB, and the VM's disk has 80 MB free"})

	_, err := Restore(t.Context(), v.client, dir, Options{Name: "full", Runtime: "test", Until: time.Now().Add(time.Minute)})
	must(t, err) // 80 MB are enough
	v.run("shutil.disk_usage = lambda path: usage(path)._replace(free=1 << 20)")
	_, err = Restore(t.Context(), v.client, dir, options("full"))
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("%v", err)
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
