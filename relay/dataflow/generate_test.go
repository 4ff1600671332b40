package dataflow

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// writer writes random cells. Names that start with the same letter have values of one kind:
// a numbers, p lists, f functions of one argument, s functions that change a list, K classes,
// k objects.
type writer struct {
	*rand.Rand
	suffix string // of every name, for notebooks of several independent parts
}

func (w *writer) pick(options ...string) string { return options[w.IntN(len(options))] }

func (w *writer) name(kind string) string { return fmt.Sprintf("%s%d%s", kind, w.IntN(3), w.suffix) }

// fill replaces #a by a name of numbers, and so on, #n by a digit and @ by the suffix.
func (w *writer) fill(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '#' && i+1 < len(text) {
			i++
			if text[i] == 'n' {
				fmt.Fprint(&b, w.IntN(9))
			} else {
				b.WriteString(w.name(string(text[i])))
			}
			continue
		}
		b.WriteByte(text[i])
	}
	return strings.ReplaceAll(b.String(), "@", w.suffix)
}

var numberStatements = []string{
	"#a = #n", "#a = #n", "#a = #n", "#a = (#a * 2 + #a) % 97", "#a = #a + 1", "#a += #n", "#a = len(#p)", "#a = sum(#p) % 97",
	"#a = #f(#a) % 97", "#a = #f(#n)", "#f(#a)", "#a, #a = #a, #a", "for #i in range(3):\n    #a += #n", "for #i in range(#n):\n    #a = #a\n    #a = 3",
	"for #a in range(#n): pass", "if #a % 2:\n    #a = #n\nelse:\n    #a = #n", "if #a % 2:\n    #a = #a\nelse:\n    #a = #n",
	"try:\n    #a = #a\nexcept NameError:\n    #a = 0", "try:\n    #a = #p[#n]\nexcept IndexError as e:\n    #a = 7\nfinally:\n    #a = 1",
	"#a = ([x * 2 for x in #p] + [5])[0]", "#a = (#a := #n)", "#a: int = #n", "#a = sum(x + #a for x in #p)",
	"#a = [y for x in #p if (y := x)][0]", "while #a > 5:\n    #a = #n\n    break", "globals()['a0@'] = #n", "#a = globals()['a1@']",
	"import math as #m\n#a = #m.floor(#a)", "#m.floor(#a)", "assert #a >= -99", "#a = max(#p, default=#a)", "#a = (lambda x: x + #a)(#n)",
	"match_ = #a", "#a = #a if #a else #n", "#a = #a or #a", "with open('/dev/null') as #h:\n    #a = #n", "def inner#n(x=#a): return x", "del #a",
}

var listStatements = []string{
	"#p = [#n, #n]", "#p = [#a, #a]", "#p = list(#p)", "#p = #p", "#p.append(#n)", "#p.append(#a)", "#p[0:1] = [#a]", "#p += [#n]", "#p = (#p + #p)[-4:]",
	"#p = [x + #a for x in #p][-4:]", "#p = #p[:]", "#s(#p)", "#p.sort()", "#a = #p.pop()", "#l = [#p, #p]", "#l[0].append(#n)", "for row in #l:\n    row.append(#n)",
	"#p = #l[0]", "#l = [#p[:]]", "#p, #p = #p, [#n]", "#d = {'k': #p}", "#d['k'] = [#a]", "#p = #d['k']", "#d.update(k=[#n])", "#p = list(map(#f, #p[:3]))", "for #a in #p:\n    pass",
	"del #p[0]", "#l.append(#p)", "#l = #l", "#d['k'] = #p", "#l[0] = #p", "for #p in #l[:2]:\n    #p.append(#n)", "#p = sorted(#p, key=lambda x: x * #a)",
}

var functionStatements = []string{
	"def #f(x):\n    return x + #a", "def #f(x):\n    return x + #n", "def #f(x):\n    global a0@\n    a0@ = (x + 1) % 97\n    return #a", "def #f(x):\n    #p.append(x)\n    return len(#p)",
	"#f = lambda x: x + #a", "#f = #f", "def #s(q):\n    q.append(#n)", "def #s(q):\n    q.append(#a)", "def #s(q):\n    w = q\n    w[:1] = [#n]",
	"def make#n():\n    def inner(x):\n        return x + #a\n    return inner\n#f = make0()", "def #f(x):\n    t = #p\n    t.append(1)\n    return x",
	"class #K:\n    size = #a\n    def __init__(self, q):\n        self.q = q\n    def go(self, x):\n        self.q.append(x)\n        return #a",
	"#k = #K(#p)", "#a = #k.go(#n)", "#k.go(#a)", "#k.q = [#n]", "#a = len(#k.q)", "#f = #k.go", "#g = (x + #a for x in #p[:2])", "#a = next(#g, 3)",
	"from functools import partial\n#f = partial(#f)", "def #f(x, y=#a):\n    return x + y",
	"def deco#n(g):\n    def inner(x):\n        return g(x) + #a\n    return inner", "#f = deco0(#f)", "#u = [#f]", "#a = #u[0](#n)", "def #f(x):\n    return [i for i in #p][:1] + [x] and x",
}

// statement returns a random statement.
func (w *writer) statement() string {
	kinds := [][]string{numberStatements, numberStatements, numberStatements, listStatements, listStatements, functionStatements}
	return w.fill(w.pick(kinds[w.IntN(len(kinds))]...))
}

// cell returns a cell of some statements.
func (w *writer) cell() string {
	var lines []string
	for range 1 + w.IntN(3) {
		lines = append(lines, w.statement())
	}
	return strings.Join(lines, "\n")
}

// setup returns cells that bind every name, few names each.
func (w *writer) setup() []string {
	cells := []string{"import math\nfrom functools import partial\nm0@, m1@, m2@ = math, math, math"}
	for i := range 3 {
		for _, form := range []string{"a#@ = 5", "p#@ = [1, 2]", "l#@ = [[1], [2]]", "d#@ = {'k': [1]}", "g#@ = iter([1])\ndef s#@(q): q.append(4)",
			"def f#@(x): return x + 1\nu#@ = [f#@]\ndef deco#(g): return g\ndef make#(): return f#@",
			"class K#@:\n    def __init__(self, q): self.q = q\n    def go(self, x): return len(self.q)\nk#@ = K#@([3])"} {
			cells = append(cells, strings.ReplaceAll(form, "#", fmt.Sprint(i)))
		}
	}
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "@", w.suffix)
	}
	return cells
}

// notebook returns the setup cells and n others.
func (w *writer) notebook(n int) []string {
	cells := w.setup()
	for range n {
		cells = append(cells, w.cell())
	}
	return cells
}

// breakable adds a point at which the cell can be made to fail, before a random statement.
func (w *writer) breakable(cell string) string {
	lines := strings.Split(cell, "\n")
	var starts []int
	for i, line := range lines {
		word, _, _ := strings.Cut(strings.TrimRight(line, ":"), " ")
		if !strings.HasPrefix(line, " ") && word != "else" && word != "except" && word != "finally" && (i == 0 || !strings.HasPrefix(lines[i-1], "@")) {
			starts = append(starts, i)
		}
	}
	starts = append(starts, len(lines))
	at := starts[w.IntN(len(starts))]
	return strings.Join(lines[:at], "\n") + "\ncheckpoint()\n" + strings.Join(lines[at:], "\n")
}
