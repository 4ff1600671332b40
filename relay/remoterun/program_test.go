package remoterun

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// runProgram runs a program and returns what it prints.
func runProgram(t *testing.T, vm VM, stdin, source string, arguments ...string) (out, errs string, err error) {
	t.Helper()
	var c console
	streams := terminal.Streams{In: strings.NewReader(stdin), Out: &c.out, Err: &c.err}
	err = Run(t.Context(), vm, Code{Text: source, Program: "job.py", Arguments: arguments, Timeout: time.Minute}, Console{Streams: streams, PictureDir: t.TempDir()})
	// Other tests use the same VM, and a run of theirs may be before this one.
	return c.out.String(), waitingLine.ReplaceAllString(c.err.String(), ""), err
}

var waitingLine = regexp.MustCompile("(?m)^colab-relay: waiting for .*\n")

func TestProgramsRunAsByPython(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		vm := VM{Runtime: "vm", Client: newClient(t, pool.Borrow(t, s.Python).Ready.LocalURL, nil)}
		for name, c := range map[string]struct {
			source, out, errs string
			err               error
		}{
			"arguments": {"import sys\nprint(sys.argv, __name__)", "['job.py', 'a b', 'ä'] __main__\n", "", nil},
			"exception": {"def f():\n    1/0  # here\nf()", "",
				"Traceback (most recent call last):\n  File \"job.py\", line 3, in <module>\n    f()\n  File \"job.py\", line 2, in f\n    1/0  # here\n    ~^~\nZeroDivisionError: division by zero\n", ErrPrinted},
			"group": {"raise ExceptionGroup('two', [ValueError(1)])", "",
				"  + Exception Group Traceback (most recent call last):\n  |   File \"job.py\", line 1, in <module>\n  |     raise ExceptionGroup('two', [ValueError(1)])\n  | ExceptionGroup: two (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: 1\n    +------------------------------------\n", ErrPrinted},
			"syntax":       {"x = (", "", "  File \"job.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n", ErrPrinted},
			"exit code":    {"import sys\nprint(1)\nsys.exit(3)", "1\n", "", ExitCode(3)},
			"exit by text": {"import sys\nsys.exit('3')", "", "3\n", ErrPrinted},
			"exit":         {"exit()", "", "", nil},
			"terminal":     {"raise SystemExit(b'\\x1b[2J'.decode())", "", "\n", ErrPrinted},
			"input":        {"import getpass\nprint(input('a? '), getpass.getpass('b? '))", "1 2\n", "a? \nb? \n", nil},
			"asyncio":      {"import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    print(input())\nasyncio.run(f())", "1\n", "", nil},
			"pickle":       {"import pickle\nclass A:\n    pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", "True\n", "", nil},
			"last value":   {"7", "", "", nil},
			"interrupted":  {"import os, signal, threading\nos.kill(os.getpid(), signal.SIGINT)\nthreading.Event().wait(60)", "", "", ErrPrinted},
		} {
			t.Run(name, func(t *testing.T) {
				out, errs, err := runProgram(t, vm, "1\n2\n", c.source, "a b", "ä")
				if name == "interrupted" {
					if !strings.HasPrefix(errs, "Traceback (most recent call last):\n  File \"job.py\", line ") || !strings.HasSuffix(errs, "\nKeyboardInterrupt\n") {
						t.Errorf("stderr %q", errs)
					}
					errs = ""
				}
				if name == "input" {
					errs = strings.ReplaceAll(errs, "? b", "? \nb") // a pipe's line break is not shown
					errs = strings.TrimSuffix(errs, "\n") + "\n"
				}
				if out != c.out || errs != c.errs || !errors.Is(err, c.err) {
					t.Errorf("it printed %q %q and ended with %v, want %q %q %v", out, errs, err, c.out, c.errs, c.err)
				}
			})
		}
		if out, errs, err := runProgram(t, vm, "", "print(A)"); err != nil || !strings.Contains(out, "__main__.A") {
			t.Errorf("the variables of the program are gone: %v %q", err, errs)
		}
	})
}

func TestChangedModulesAreImportedAnew(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		vm := VM{Runtime: "vm", Client: newClient(t, pool.Borrow(t, s.Python).Ready.LocalURL, nil)}
		write := func(content string) { // in the same second, of the same length
			var c console
			code := "import os\nopen('helpers.py', 'w').write('def f(): return " + content + "\\n')\nos.utime('helpers.py', (1e9, 1e9))"
			if err := Run(t.Context(), vm, Code{Text: code, Timeout: time.Minute}, c.console(t)); err != nil {
				t.Fatal(err, c.err.String())
			}
		}
		const program = "import helpers, state\nfrom helpers import f\nstate.runs.append(1)\nprint(f(), len(state.runs), getattr(helpers, 'mark', 0))"
		var c console
		if err := Run(t.Context(), vm, Code{Text: "open('state.py', 'w').write('runs = []')", Timeout: time.Minute}, c.console(t)); err != nil {
			t.Fatal(err, c.err.String())
		}
		write("1")
		// What a cell imports is known from the kernel's start on.
		if err := Run(t.Context(), vm, Code{Text: "import helpers\nhelpers.mark = 7", Timeout: time.Minute}, c.console(t)); err != nil {
			t.Fatal(err, c.err.String())
		}
		expect := func(out, note string) {
			t.Helper()
			gotOut, gotNote, err := runProgram(t, vm, "", program)
			if err != nil || gotOut != out || gotNote != note {
				t.Errorf("%v %q %q, want %q %q", err, gotOut, gotNote, out, note)
			}
		}
		expect("1 1 7\n", "")
		write("2")
		expect("2 2 0\n", "colab-relay: imported anew because its file changed: helpers\n")
		expect("2 3 0\n", "")
		// Other tests use this kernel too.
		if err := Run(t.Context(), vm, Code{Text: "import os, sys\nfor m in 'helpers', 'state': del sys.modules[m]; os.remove(m + '.py')", Timeout: time.Minute}, c.console(t)); err != nil {
			t.Fatal(err, c.err.String())
		}
	})
}

func TestAMissingModuleIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"No module named 'helpers'":                          "helpers",
		"No module named 'a.b'; 'a' is not a package":        "a.b",
		"No module named ''":                                 "",
		"No module named '" + strings.Repeat("x", 201) + "'": "",
		"I say: No module named 'helpers'":                   "",
		"No module named 'a\x1b[2J'":                         "a\x1b[2J", // callers look for files of that name
		"import of helpers halted; None in sys.modules":      "",
	} {
		err := CellError("ModuleNotFoundError", text)
		missing, ok := errors.AsType[*NoModuleError](err)
		if !errors.Is(err, ErrPrinted) || ok != (want != "") || ok && missing.Module != want && want != "a\x1b[2J" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := CellError("ImportError", "No module named 'helpers'"); err != ErrPrinted {
		t.Errorf("%v", err)
	}
}

// An executor of another release has another package, or the user's code removed it.
func TestAMissingPackageIsSentAgain(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	var c console
	forget := Code{Text: "import sys\nfor m in [m for m in sys.modules if m.startswith('colab_relay_')]: del sys.modules[m]", Timeout: time.Minute}
	if err := Run(t.Context(), vm, forget, c.console(t)); err != nil {
		t.Fatal(err, c.err.String())
	}
	out, errs, err := runProgram(t, vm, "", "import sys\nprint(2)\nsys.exit(5)")
	if out != "2\n" || errs != "" || err != ExitCode(5) {
		t.Errorf("%v, %q %q", err, out, errs)
	}
}

func TestListsNameTheProgram(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	e, err := Start(t.Context(), vm, Code{Text: "\n\nimport time\x1b[2J", Program: "src/train.py", Arguments: []string{"--epochs", "3\n"}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if e.CodePreview != "# src/train.py --epochs 3 : import time" {
		t.Errorf("the preview is %q", e.CodePreview)
	}
	var c console
	if err := Attach(t.Context(), vm, e.ExecutionID, c.console(t)); !errors.Is(err, ErrPrinted) {
		t.Errorf("%v %q", err, c.err.String())
	}
}

func TestReadersOfLogsLeaveTheRunAlone(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	e, err := Start(t.Context(), vm, Code{Text: endless, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var c console
	ended := make(chan error)
	go func() { ended <- Logs(ctx, vm, e, LogOptions{Follow: true}, c.console(t)) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if e, err := vm.Client.Execution(t.Context(), e.ExecutionID, 0, 0, 0); err != nil || e.Status != contract.StatusRunning {
		t.Errorf("the run is %s, %v", e.Status, err)
	}

	attached, cancel := context.WithCancel(t.Context())
	var second console
	go func() { ended <- Attach(attached, vm, e.ExecutionID, second.console(t)) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(second.out.String(), "here\nhere\n") })
	cancel()
	if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), "the run ended as interrupted") {
		t.Errorf("%v", err)
	}
}

// Two people may see the same prompt.
func TestAPromptAnsweredElsewhereIsNoError(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	e, err := vm.Client.Submit(t.Context(), contract.Submit{Code: "print(input('a? '))\nprint(input('b? '))", WaitSeconds: 50})
	if err != nil || e.Status != contract.StatusWaitingForInput {
		t.Fatalf("%s %v", e.Status, err)
	}
	typed, typing := newPipe(t)
	var out, errs harness.Output
	ended := make(chan error)
	go func() {
		ended <- Attach(t.Context(), vm, e.ExecutionID, Console{Streams: terminal.Streams{In: typed, Out: &out, Err: &errs}, PictureDir: t.TempDir()})
	}()
	within.Until(t, "it is printed", func() bool { return strings.Contains(errs.String(), "a? ") })
	if _, err := vm.Client.Input(t.Context(), e.ExecutionID, contract.Input{Text: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	typing("late")
	within.Until(t, "it is printed", func() bool { return strings.Contains(errs.String(), "b? ") })
	typing("here")
	if err := <-ended; err != nil || out.String() != "elsewhere\nhere\n" || !strings.Contains(errs.String(), "that prompt has been answered elsewhere") {
		t.Errorf("%v %q %q", err, out.String(), errs.String())
	}
}

func TestRunsAreFoundByTheBeginningOfTheirID(t *testing.T) {
	runs := []contract.Execution{{ExecutionID: "abc1", CodePreview: "x\x1b[2J"}, {ExecutionID: "abd2"}, {ExecutionID: "ab"}}
	for prefix, want := range map[string]string{"abc": "abc1", "abd2": "abd2", "ab": "ab"} {
		if got, err := Find(runs, prefix); err != nil || got.ExecutionID != want {
			t.Errorf("%q: %q %v", prefix, got.ExecutionID, err)
		}
	}
	if _, err := Find(runs, "a"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "\n  abd2  ") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
	for _, prefix := range []string{"", "x"} {
		if _, err := Find(runs, prefix); !errors.Is(err, ErrNoSuchRun) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	many := make([]contract.Execution, 30)
	for i := range many {
		many[i].ExecutionID = "a" + strings.Repeat("b", i)
	}
	if _, err := Find(many[1:], "a"); strings.Count(err.Error(), "\n") != runlist.MaxAmbiguous+1 {
		t.Errorf("%v", err)
	}
}

// newPipe returns a stdin and what types a line into it.
func newPipe(t *testing.T) (io.Reader, func(line string)) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() }) // ends a read that is left running
	return r, func(line string) { io.WriteString(w, line+"\n") }
}
