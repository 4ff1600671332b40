package chunked

import (
	"fmt"
	"strings"
	"testing"
)

func TestOnlyAnIterationThatSetsResultGivesAValue(t *testing.T) {
	cases := map[string]struct {
		setup, loop string
		n           int64
		want        string // i:value
		left        string // the value of result after the run
	}{
		"always, the same number":       {"", "result = 5", 3, "0:5 1:5 2:5", "5"},
		"always, in a tuple":            {"", "for k in []: continue\na, (result, *b) = i, (7, 1)\nif i: continue", 2, "0:7 1:7", "7"},
		"always, and read":              {"result = 1", "result += 0\nprint(result)", 3, "0:1 1:1 2:1", "1"},
		"under an if":                   {"", "if i % 2:\n    result = 5", 5, "1:5 3:5", "5"},
		"after a continue":              {"", "if i in (1, 2): continue\nresult = 5", 4, "0:5 3:5", "5"},
		"in a try":                      {"", "try:\n    1 / (i - 1)\n    result = 5\nexcept ZeroDivisionError: pass", 3, "0:5 2:5", "5"},
		"under with":                    {"import contextlib", "with contextlib.suppress(ZeroDivisionError):\n    1 / (i - 1)\n    result = 5", 3, "0:5 2:5", "5"},
		"by a loop that may be empty":   {"", "for result in [7] * (i % 2): pass", 4, "1:7 3:7", "7"},
		"in an annotation without one":  {"", "result: int\nif i == 1: result = 5", 3, "1:5", "5"},
		"by a function":                 {"", "def f():\n    global result\n    result = 5\nif i != 1: f()", 3, "0:5 2:5", "5"},
		"none set, one was there":       {"result = 'old'", "if False: result = 5", 2, "", "old"},
		"sometimes, and read":           {"result = 300", "print(result)\nif i % 2: result = result * 300", 4, "1:90000 3:27000000", "27000000"},
		"sometimes, and read by set-up": {"result = [0]\ndef f(): return result", "assert f()\nif i % 2: result = [i]", 4, "1:[1] 3:[3]", "[3]"},
		"sometimes, read by its name":   {"result = 500", "globals()['result']\nif i == 1: result = 600", 3, "1:600", "600"},
		"in a timed cell":               {"", "%%time\nresult = i", 2, "0:0 1:1", "1"},
		"in a captured, timed cell":     {"", "%%capture out\n%time result = 5", 3, "0:5 1:5 2:5", "5"},
		"in exec":                       {"", "if i: exec('result = 5')", 3, "1:5 2:5", "5"},
		"read in a timed cell":          {"result = 500", "if i == 1: result = 600\n%time x = result", 3, "1:600", "600"},
		"by another language":           {"result = 500", "%%bash\nresult=5", 2, "", "500"},
	}
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for name, c := range cases {
			s := spec(c.setup, c.loop, c.n)
			s.Name = name
			var got []string
			for _, v := range finish(t, dir, s, m).Results {
				got = append(got, fmt.Sprintf("%d:%s", v.Iteration, v.Value))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: %q, want %q", name, text, c.want)
			}
			if left := strings.TrimSpace(m.python("print(result); del result")); left != c.left {
				t.Errorf("%s: left %q, want %q", name, left, c.left)
			}
		}
	})
}

func TestFailedIterationLeavesTheOldResult(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		a := call(t, dir, spec("result = 'old'", "1 / (i - 1)\nif i: result = 5", 3), m, long)
		a.checkStop(t, stop{Status: "failed", EName: "ZeroDivisionError", Done: 1, Iteration: 1})
		if left := m.python("print(result)"); left != "old\n" {
			t.Errorf("left %q", left)
		}
	})
}
