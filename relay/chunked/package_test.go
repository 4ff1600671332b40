package chunked

import (
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// purge makes a kernel forget the Python package, as a user's cell may.
const purge = "import sys\nfor _name in list(sys.modules):\n    if _name.startswith('colab_relay_') and _name != 'colab_relay_runs': del sys.modules[_name]\n"

// recorder is a VM that records the code of each submit. It fails the test if a submit is
// not on disk first, or if a request_id is submitted with different code.
func recorder(t *testing.T, vm VM, dir string) (*interceptor, *[]string) {
	t.Helper()
	var codes []string
	byRequest := map[string]string{}
	return &interceptor{VM: vm, submit: func(_ *string, s *contract.Submit) {
		if saved, err := Load(dir, "run"); err != nil || saved.InFlight == nil || saved.InFlight.RequestID != s.RequestID {
			t.Errorf("the submit of %q is not on disk: %+v %v", s.RequestID, saved, err)
		}
		if earlier, ok := byRequest[s.RequestID]; ok && earlier != s.Code {
			t.Errorf("request_id %q was submitted with other code", s.RequestID)
		}
		byRequest[s.RequestID] = s.Code
		codes = append(codes, s.Code)
	}}, &codes
}

func includesPackage(code string) bool { return strings.Contains(code, `"package_loader.py":`) }

func TestBatchesSendTheirArgumentsOnly(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		m.restartKernel()
		s := spec("total = 0", "total += i", 3)
		s.BatchSize = 1
		vm, codes := recorder(t, m, dir)
		finish(t, dir, s, vm)
		if len(*codes) != 3 {
			t.Fatalf("%d batches", len(*codes))
		}
		for n, code := range *codes {
			if size, most := len(code), 3<<10+len(s.Setup)+len(s.Loop); size > most {
				t.Errorf("batch %d has %d bytes, over %d", n, size, most)
			}
		}
	})
}

// The package is sent again where it is missing, and no iteration runs twice.
func TestMissingPackageIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		between    func(m *machine) // between two calls
		setup      string
		loop       string
		sent       int // batches with the package
		want       string
		executions int
	}{
		"the user's cell removed it":  {func(m *machine) { m.python(purge) }, "", "print(i)", 1, "0\n1\n2\n3\n", 5},
		"the user's cell replaced it": {func(m *machine) { m.python(replace) }, "", "print(i)", 1, "0\n1\n2\n3\n", 5},
		"part of it is gone": {func(m *machine) {
			m.python("import sys\ndel sys.modules[next(n for n in sys.modules if n.startswith('colab_relay_') and n.endswith('.safe'))]")
		}, "", "print(i)", 1, "0\n1\n2\n3\n", 5},
		"%reset -f":                      {func(m *machine) { m.python("%reset -f") }, "", "print(i)", 0, "0\n1\n2\n3\n", 4},
		"an iteration removed it":        {func(*machine) {}, "", "print(i)\nif i == 1:\n    " + strings.ReplaceAll(strings.TrimSpace(purge), "\n", "\n    "), 1, "0\n1\n2\n3\n", 5},
		"a module of the user's own":     {func(m *machine) { m.python(ownModule) }, "", "import colab_relay\nprint(i, colab_relay.mine)", 0, "0 7\n1 7\n2 7\n3 7\n", 4},
		"an iteration displays a report": {func(*machine) {}, "from IPython.display import display", fakeReport, 0, "0\n1\n2\n3\n", 4},
	} {
		t.Run(name, func(t *testing.T) {
			eachStack(t, func(t *testing.T, m *machine, dir string) {
				defer m.restartKernel() // with the package
				m.python(ownModule)
				s := spec(c.setup, c.loop, 2)
				s.BatchSize = 1
				vm, codes := recorder(t, m, dir)
				printed := finish(t, dir, s, vm).printed
				c.between(m)
				s.N, s.OnChange = 4, Continue
				printed += finish(t, dir, s, vm).printed
				sent := 0
				for _, code := range *codes {
					if includesPackage(code) {
						sent++
					}
				}
				if printed != c.want || sent != c.sent || len(*codes) != c.executions {
					t.Errorf("printed %q, %d of %d batches with the package; want %q, %d of %d", printed, sent, len(*codes), c.want, c.sent, c.executions)
				}
			})
		})
	}
}

var (
	replace    = purge + "import types\nsys.modules['" + kernelpy.Package() + "'] = types.SimpleNamespace(loader=None)\n"
	ownModule  = "import os\nos.makedirs('colab_relay', exist_ok=True)\nopen('colab_relay/__init__.py', 'w').write('mine = 7')\nopen('colab_relay/registry.py', 'w').write('1 / 0')"
	fakeReport = "print(i)\ndisplay({'application/vnd.colab-relay.missing+json': {'package': '" + kernelpy.Package() + "'}}, raw=True)"
)

func TestRestartedKernelIsSentNothingThatItHas(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		defer m.restartKernel() // with the package
		s := spec("", "print(i)", 2)
		s.BatchSize = 1
		vm, codes := recorder(t, m, dir)
		finish(t, dir, s, vm)
		m.restartKernel()
		s.N, s.OnChange, s.OnNewKernel = 4, Continue, NewKernelContinue
		if got := finish(t, dir, s, vm).printed; got != "2\n3\n" {
			t.Errorf("printed %q", got)
		}
		if text := fmt.Sprint(*codes); includesPackage(text) {
			t.Error("the package was sent, which the executor of the same release had loaded")
		}
		m.python(purge)
		s.N = 6
		if got := finish(t, dir, s, vm).printed; got != "4\n5\n" {
			t.Errorf("printed %q", got)
		}
		if text := fmt.Sprint(*codes); !includesPackage(text) {
			t.Error("the package was not sent again")
		}
	})
}
