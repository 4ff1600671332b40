package chunked

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"colabrelay/relay/plain"
	"colabrelay/shared/kernelpy"
)

// bodies are code of all kinds, with what it prints.
var bodies = map[string]struct {
	setup, loop string
	n           int64
	want        string // printed
}{
	"the documented example": {
		"import os; files = sorted(['a', 'b', 'c'])", "print(f'Processing {i}: {files[{i}]}')", 3,
		"Processing 0: a\nProcessing 1: b\nProcessing 2: c\n",
	},
	"several lines": {"total = 0", "x = i * 2\ntotal += x\nprint(total)\n", 3, "0\n2\n6\n"},
	"nested functions": {
		"", "def outer(n):\n    def inner(k):\n        return k + i\n    return inner(n)\nprint(outer(10))", 2, "10\n11\n",
	},
	"try and except":        {"", "try:\n    1 / i\nexcept ZeroDivisionError as e:\n    print('caught', e)\nelse:\n    print('fine')\nfinally:\n    print('-')", 2, "caught division by zero\n-\nfine\n-\n"},
	"tabs":                  {"", "if i:\n\tfor k in range(2):\n\t\tprint(i, k)", 2, "1 0\n1 1\n"},
	"triple quotes":         {"", "text = '''a\n  b {i}\n'''\nprint(text, end='')\nprint(\"\"\"x\"\"\" + '\\n' + r'\\n')", 1, "a\n  b 0\nx\n\\n\n"},
	"braces":                {"", "d = {'i': i, 'n': {i: {i}}}\nprint(d, {i}, {i, 9} - {9}, f'{d[\"i\"]}{{i}}')", 2, "{'i': 0, 'n': {0: {0}}} {0} {0} 0{i}\n{'i': 1, 'n': {1: {1}}} {1} {1} 1{i}\n"},
	"the number in strings": {"", "print('n {i}, {{i}}, {i}{i}', b'{i}'.decode(), '{j}'.format(j=1), f'a {i} b' 'c')", 2, "n 0, {{i}}, 00 {i} 1 a 0 bc\nn 1, {{i}}, 11 {i} 1 a 1 bc\n"},
	"subscripts":            {"a = [[5, 6], [7, 8]]; d = {}", "d[{i}] = a[{i}][{i}]\nprint(d[{i}], f'{a[{i}]!r:>8}')\ndel d[{i}]", 2, "5   [5, 6]\n8   [7, 8]\n"},
	"format specs":          {"", "w = 4\nprint(f'{i:>{w}}|{i!r}|{i:03d}')", 2, "   0|0|000\n   1|1|001\n"},
	"continue":              {"", "if i % 2:\n    continue\nfor k in range(5):\n    if k == 1:\n        break\n    continue\nprint(i)", 4, "0\n2\n"},
	"a loop's else":         {"", "for k in range(2):\n    pass\nelse:\n    print('else', i)\nwhile True:\n    break", 2, "else 0\nelse 1\n"},
	"shell and magics":      {"%matplotlib --list" + "\n", "!echo shell {i}\nx = %timeit -n1 -r1 -q -o pass\nprint(type(x).__name__)", 2, ""},
	"a cell magic":          {"", "%%bash\necho bash {i}\n", 2, "bash 0\nbash 1\n"},
	"decorators and global": {"n = 0", "import functools\n@functools.lru_cache(None)\ndef f(k):\n    global n\n    n += 1\n    return n\nf(i); f(i)\nprint(n)", 3, "1\n2\n3\n"},
	"only a comment":        {"", "# nothing {i}", 3, ""},
	"comprehensions":        {"", "print([i for i in range(3)], sum(i for _ in 'ab'), (lambda: i)())", 2, "[0, 1, 2] 0 0\n[0, 1, 2] 2 1\n"},
	"not ASCII":             {"größe = 'ä😀\\u2028'", "print(größe[0], '😀', '\\x00' == chr(0), \"'\\\"\")", 1, "ä 😀 True '\"\n"},
	"classes":               {"", "class A:\n    result = 5\n    i = 9\n    def f(self): return i\nprint(A().f())", 2, "0\n1\n"},
}

func TestAnyBodyRuns(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for name, b := range bodies {
			t.Run(name, func(t *testing.T) {
				s := spec(b.setup, b.loop, b.n)
				s.Name = name
				a := finish(t, dir, s, m)
				if name == "shell and magics" { // a shell's terminal adds other characters
					for _, line := range []string{"shell 0", "shell 1", "TimeitResult"} {
						if !strings.Contains(a.printed, line) {
							t.Errorf("printed %q without %q", a.printed, line)
						}
					}
				} else if a.printed != b.want {
					t.Errorf("printed %q, want %q", a.printed, b.want)
				}
				if len(a.Results) != 0 {
					t.Errorf("results %v of code that assigns none", a.Results)
				}
			})
		}
		shadow := spec("tell = print\nexec = compile = type = len = print = open = range = dict = None", "tell(i)", 2)
		if got := finish(t, dir, shadow, m).printed; got != "0\n1\n" {
			t.Errorf("with builtins shadowed: %q", got)
		}
		m.python("del exec, compile, type, len, print, open, range, dict")
		if got := m.python("print([n for n in globals() if 'colab_relay' in n], [n for n in __import__('sys').modules if 'colab_relay' in n and not n.startswith('" + kernelpy.Package() + "')])"); got != "[] ['colab_relay_runs']\n" {
			t.Errorf("left in the kernel: %s", got)
		}
	})
}

// A set in a slice is not the notation [{i}], and remains an error.
func TestOnlyTheDocumentedNotationIsRead(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for name, loop := range map[string]string{
			"a set in a slice":      "[1, 2][{i}:]",
			"a set of another name": "j = 0\n[1, 2][{j}]",
			"two in a set":          "[1, 2][{i, i}]",
		} {
			s := spec("", loop, 1)
			s.Name = name
			call(t, dir, s, m, long).checkStop(t, stop{Status: "failed", EName: "TypeError"})
		}
	})
}

func TestSyntaxErrorIsReportedBeforeAnythingRuns(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for name, c := range map[string]struct{ setup, loop, contains string }{
			"loop":              {"print('ran')", "x = 1\nif x", "File <loop_code>, line 2"},
			"setup":             {"def f(:\n  pass", "print('ran')", "File <setup_code>, line 1"},
			"break":             {"print('ran')", "if i:\n    break", "use continue"},
			"break in an else":  {"print('ran')", "for k in []:\n    pass\nelse:\n    break", "use continue"},
			"return":            {"print('ran')", "return 5", "outside function"},
			"yield":             {"print('ran')", "yield 5", "outside function"},
			"await":             {"print('ran')", "await x", "can't await outside a function"},
			"continue in setup": {"continue", "print('ran')", "continue"},
			"indentation":       {"print('ran')", "if i:\nprint(1)", "indented block"},
			"a NUL":             {"print('ran')", "x = '\x00'", "null"},
		} {
			t.Run(name, func(t *testing.T) {
				s := spec(c.setup, c.loop, 3)
				s.Name = name
				a := call(t, dir, s, m, long)
				a.checkStop(t, stop{Status: "failed", EName: "SyntaxError", Iteration: -1, Refused: true})
				if a.printed != "" {
					t.Errorf("printed %q", a.printed)
				}
				raised := a.Stop.Execution.Error
				text := strings.Join(raised.Traceback, "\n")
				if !strings.Contains(text+raised.EValue, c.contains) {
					t.Errorf("%s: %s\n%s", raised.EName, raised.EValue, text)
				}
				if strings.Contains(text, "colab_relay") || strings.Contains(text, "builtins[") {
					t.Errorf("our own frames show:\n%s", text)
				}
				// No iteration is done, so fixed code needs no on_change.
				s.Setup, s.Loop = "", "print(i)"
				if a := finish(t, dir, s, m); a.printed != "0\n1\n2\n" {
					t.Errorf("fixed: %q", a.printed)
				}
			})
		}
	})
}

func TestTracebacksShowOnlyTheUsersLines(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		m.restartKernel() // in a new kernel, the names of the code have no number
		setup := "def f(n):\n    return 1 / n"
		a := call(t, dir, spec(setup, "x = 5\nf(i)", 3), m, long)
		a.checkStop(t, stop{Status: "failed", EName: "ZeroDivisionError"})
		text := plain.Text(strings.Join(a.Stop.Execution.Error.Traceback, "\n"))
		for _, want := range []string{"return 1 / n", "----> 2 f(i)", "<setup_code>", "<loop_code>", "ZeroDivisionError: division by zero"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		for _, ours := range []string{"colab_relay", "exec(", "for i in"} {
			if strings.Contains(text, ours) {
				t.Errorf("%q shows in\n%s", ours, text)
			}
		}
		// A function of earlier code keeps its own lines.
		other := spec("", "try:\n    f(0)\nexcept ZeroDivisionError:\n    import traceback, inspect\n    print(traceback.format_exc())\n    print(inspect.getsource(f))", 1)
		other.Name = "another"
		if got := finish(t, dir, other, m).printed; strings.Count(got, "return 1 / n") != 2 {
			t.Errorf("printed %s", got)
		}
	})
}

func TestResultsAreKeptAsJSONWithinBounds(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		loop := `
values = [
    1, -2.5, "text ä 😀 \"q\" \ud800", None, True, [1, (2, 3)], {"a": {1: 2}}, float("nan"), 10**30,
    np.float32(1.5), np.arange(3), np.array(7), {1, 2} - {2}, Odd(), range(2), "x" * 70000, list(range(60000)),
    Broken(), np.zeros((300, 300)), loops, b"bytes",
]
result = values[i]
`
		setup := `
import numpy as np
class Odd:
    def __repr__(self): return "odd one"
class Broken:
    def __repr__(self): raise ValueError("no repr")
loops = []
loops.append(loops)
`
		a := finish(t, dir, spec(setup, loop, 21), m)
		got := map[int64]Value{}
		for _, v := range a.Results {
			got[v.Iteration] = v
		}
		for i, want := range []string{
			`1`, `-2.5`, "\"text ä 😀 \\\"q\\\" \\ud800\"", `null`, `true`, `[1,[2,3]]`, `{"a":{"1":2}}`, `"nan"`, `1000000000000000000000000000000`,
			`1.5`, `[0,1,2]`, `7`, `"{1}"`, `"odd one"`, `"range(0, 2)"`, "omitted: over 60 KiB", "omitted: items",
			"omitted: ValueError", "omitted: items", "", `"b'bytes'"`,
		} {
			v := got[int64(i)]
			why, omitted := strings.CutPrefix(want, "omitted: ")
			switch {
			case omitted:
				if !strings.Contains(v.Omitted, why) || string(v.Value) != "null" {
					t.Errorf("%d: %.100s %q, want omitted because %q", i, v.Value, v.Omitted, why)
				}
			case want != "":
				var x, y any
				if err := json.Unmarshal([]byte(want), &x); err != nil {
					t.Fatal(err)
				}
				_ = json.Unmarshal(v.Value, &y)
				if v.Omitted != "" || fmt.Sprint(x) != fmt.Sprint(y) {
					t.Errorf("%d: %s %q, want %s", i, v.Value, v.Omitted, want)
				}
			}
		}
		if v := got[19]; !strings.HasPrefix(string(v.Value), "[[[") {
			t.Errorf("a list that holds itself: %.60s %s", v.Value, v.Omitted)
		}
		// A local variable of a function or class is not result; a global one is.
		for loop, want := range map[string]int{"def f():\n    result = 1\nf()": 0, "def f():\n    global result\n    result = i\nf()": 2, "for result in [i]: pass": 2, "(result := i)": 2} {
			s := spec("", loop, 2)
			s.Name = loop
			if a := finish(t, dir, s, m); len(a.Results) != want {
				t.Errorf("%q: %d values", loop, len(a.Results))
			}
		}
	})
}
