package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// shadows are names that a user's own files in the working directory may have: modules of
// the standard library and of the kernel's packages, and files that IPython and Python load.
var shadows = strings.Fields(`platform json random socket asyncio ipykernel IPython zmq tornado traitlets
	jupyter_client jupyter_core comm debugpy psutil jedi matplotlib_inline os io re abc site codecs linecache
	runpy pathlib importlib encodings types typing logging threading subprocess multiprocessing queue uuid hashlib
	ipython_config ipython_kernel_config sitecustomize usercustomize ipykernel_launcher`)

// shadowed makes a folder with a file of each of those names. Each file leaves a mark when
// it runs.
func shadowed(t *testing.T) (dir, mark string) {
	t.Helper()
	dir, mark = t.TempDir(), filepath.Join(t.TempDir(), "mark")
	trap := "with open(" + pyString(mark) + ", 'a') as f: f.write(__name__ + '\\n')\nraise SystemExit('a file of the working directory ran')\n"
	for _, name := range shadows {
		must(t, os.WriteFile(filepath.Join(dir, name+".py"), []byte(trap), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "mymodule.py"), []byte("def double(x): return 2 * x\n"), 0o600))
	return dir, mark
}

func pyString(s string) string { return "r'" + s + "'" }

func TestFilesInTheWorkdirShadowNoModuleOfPythonOrTheKernel(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		for name, pythonPath := range map[string]string{"an empty entry in PYTHONPATH": ":/nonexistent", "the workdir in PYTHONPATH": "."} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir, mark := shadowed(t)
				p := start(t, in(dir), withArgs("--python", s.Python), withEnv("PYTHONPATH="+pythonPath))
				p.ready()
				found := call[contract.Probe](p, "GET", contract.PathProbe, nil)
				p.restart()
				if said, err := os.ReadFile(mark); err == nil {
					t.Fatalf("files of the workdir ran:\n%s", said)
				}
				if found.Python.IPyKernel == "" {
					t.Error("the packages were not found")
				}
				code := "import json, os, sys, mymodule\nassert os.path.samefile(os.path.dirname(mymodule.__file__), " + pyString(dir) + "), mymodule.__file__\n" +
					"assert 'COLAB_RELAY_PYTHONPATH' not in os.environ\n" +
					"(mymodule.double(21), os.path.samefile('.', " + pyString(dir) + "), os.environ.get('PYTHONPATH'), json.__file__.startswith(sys.base_prefix))"
				e := p.submit("import", code, 20)
				if want := "(42, True, '" + pythonPath + "', True)"; e.Status != contract.StatusSucceeded || resultOf(e) != want {
					t.Errorf("%s: %s, want %s; %+v", e.Status, resultOf(e), want, e.Events)
				}
			})
		}
	})
}

func resultOf(e contract.Execution) string {
	for _, event := range e.Events {
		var text string
		if json.Unmarshal(event.Data["text/plain"], &text) == nil {
			return text
		}
	}
	return ""
}

func TestProcessesThatTheUsersCodeStartsFindItsModules(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "mymodule.py"), []byte("def double(x): return 2 * x\n"), 0o600))
		p := start(t, in(dir), withArgs("--python", s.Python))
		p.ready()
		e := p.submit("spawn", `
import multiprocessing, subprocess, sys, mymodule
with multiprocessing.get_context("spawn").Pool(1) as pool:
    spawned = pool.map(mymodule.double, [1, 2])
said = subprocess.run([sys.executable, "-c", "import mymodule; print(mymodule.double(3))"], capture_output=True, text=True).stdout
(spawned, said)`, 40)
		if want := `([2, 4], '6\n')`; resultOf(e) != want {
			t.Errorf("%s: %s, want %s; %+v", e.Status, resultOf(e), want, e.Events)
		}
	})
}
