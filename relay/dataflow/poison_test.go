package dataflow

import (
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// notebookCase is a notebook whose marked cells fail, and what is skipped then. A cell starts
// with its mark: "- " none, "! " fails, "~ " fails and is tolerated.
type notebookCase struct {
	name  string
	cells []string
	want  string // "2(x of 1) 3": cell 2 is skipped for x of cell 1, cell 3 for no name
}

var poisonCases = []notebookCase{
	{"nothing failed", []string{"- x = 1", "- y = x"}, ""},
	{"a reader", []string{"! x = 1", "- y = x", "- z = 2"}, "1(x of 0)"},
	{"a chain", []string{"! x = 1", "- y = x", "- z = y", "- w = 1"}, "1(x of 0) 2(y of 1)"},
	{"two reasons", []string{"! x = 1", "! y = 1", "- z = x + y"}, "2(x of 0)(y of 1)"},
	{"two names", []string{"! x, y = 1, 2", "- z = x + y"}, "1(x,y of 0)"},
	{"a certain store heals", []string{"! x = 1", "- x = 2", "- y = x"}, ""},
	{"a possible store does not", []string{"! x = 1", "- if 1 < 2:\n    x = 2", "- y = x"}, "2(x of 0)"},
	{"a store of a cell that fails does not", []string{"! x = 1", "! x = 2", "- y = x"}, "2(x of 1)"},
	{"a skipped cell's other names", []string{"! x = 1", "- y = x\nz = 1", "- print(z)"}, "1(x of 0) 2(z of 1)"},
	{"tolerated", []string{"~ x = 1", "- y = x"}, ""},
	{"a change in place", []string{"- x = []", "! x.show_all()", "- print(x)"}, "2(x of 1)"},
	{"a method's value", []string{"- x = 1", "! y = x.mean()", "- print(x)", "- print(y)"}, "3(y of 1)"},
	{"a module's function", []string{"- import np, plt", "! plt.plot(x)", "- np.show(plt)"}, ""},
	{"a module imported under another cell's condition", []string{"- try:\n    import m\nexcept ImportError:\n    m = None", "! m.plot(1)", "- print(m)"}, ""},
	{"a deleted name", []string{"- x = 1", "! del x", "- print(x)"}, "2(x of 1)"},
	{"an import", []string{"! import a", "- a.b()"}, "1(a of 0)"},
	{"a function's global", []string{"- def f():\n    return g", "! g = 1", "- def h():\n    return f()", "- h()", "- f"}, "3(g of 1) 4(g of 1)"},
	{"a global that the caller binds", []string{"- def f():\n    return g", "! g = 1", "- g = 2\nf()"}, ""},
	{"a function that is replaced", []string{"- def f():\n    return g", "! g = 1", "- def f():\n    return 2", "- f()"}, ""},
	{"a function under another name", []string{"- def f():\n    return g", "- h = f", "- k = [h]", "! g = 1", "- k[0]()", "- print(f)"}, "4(g of 3) 5(g of 3)"},
	{"what a function returned", []string{"- def f():\n    return g + 1", "- r = f()", "! g = 1", "- print(r)"}, ""},
	{"a method's global", []string{"- class A:\n    def go(self):\n        return g", "- a = A()", "! g = 1", "- a.go()"}, "3(g of 2)"},
	{"a base class's global", []string{"- class B:\n    def go(self):\n        return g", "- class A(B): pass", "- a = A()", "! g = 1", "- a.go()"}, "4(g of 3)"},
	{"a closure", []string{"- def f(k):\n    def inner():\n        return g\n    return inner", "- h = f(1)", "! g = 1", "- h()"}, "3(g of 2)"},
	{"a decorator's global", []string{"- def d(f):\n    def inner():\n        return g\n    return inner", "- @d\ndef f(): pass", "! g = 1", "- f()"}, "3(g of 2)"},
	{"a generator", []string{"- it = (x + k for x in y)", "! k = 1", "- next(it)"}, "2(k of 1)"},
	{"a lambda in partial", []string{"- h = partial(lambda: g)", "! g = 1", "- h()"}, "2(g of 1)"},
	{"a function that stores a global", []string{"- def f():\n    global n\n    n = 1", "! f()", "- print(n)"}, "2(n of 1)"},
	{"an argument that a function changes", []string{"- def f(q):\n    q.append(1)", "- p, r = [], []", "! x = f(p)", "- print(p)", "- print(r)"}, "3(p of 2)"},
	{"an argument that a function leaves", []string{"- def f(q):\n    return len(q)", "! f(p)", "- print(p)"}, ""},
	{"an argument of an unknown function", []string{"! f(p)", "- print(p)", "- r = 1"}, "1(p of 0)"},
	{"another name of the value", []string{"- a = []", "- b = a", "! b.append(1)", "- print(a)"}, "3(a of 2)"},
	{"another name before it was bound again", []string{"- a = []", "- b = a", "- a = []", "! b.append(1)", "- print(a)"}, ""},
	{"another name that was added to", []string{"- a = []", "- b = a", "- b += [1]", "! b.append(1)", "- print(a)"}, "4(a of 3)"},
	{"another name by way of a list", []string{"- a = []", "- l = [a]\nb = l[0]", "! b.append(1)", "- print(a)"}, "3(a of 2)"},
	{"a part of the value", []string{"- rows = [[1]]", "- row = rows[0]", "! row.append(1)", "- print(rows)"}, "3(rows of 2)"},
	{"an object that holds the value", []string{"- net = 1", "- opt = Adam(net.parameters())", "! opt.step()", "- print(net)"}, "3(net of 2)"},
	{"an object that changes itself", []string{"- class A:\n    def go(self):\n        self.n = 1", "- a = A()", "! r = a.go()", "- print(a)", "- A"}, "3(a of 2)"},
	{"an opaque cell fails", []string{"- x = 1", "! !echo", "- x = 2", "- y = 3"}, "2( of 1) 3( of 1)"},
	{"an opaque reader", []string{"! x = 1", "- !echo", "- x = 1", "- !echo", "- y = 2"}, "1( of 0) 2( of 1) 3( of 1) 4( of 1)"},
	{"an opaque reader without poison", []string{"! x = 1", "- x = 2", "- eval('x')"}, ""},
	{"a star import fails", []string{"! from a import *", "- y = 1"}, "1( of 0)"},
	{"a syntax error", []string{"! x = (", "- y = 1"}, "1( of 0)"},
	{"a syntax error later", []string{"! x = 1", "- y = (", "- z = 1"}, "1( of 0) 2( of 1)"},
	{"a timed magic", []string{"! %time x = 1", "- %%time\ny = x"}, "1(x of 0)"},
	{"a failed name that a comprehension has too", []string{"! x = 1", "- y = [x for x in z]"}, ""},
	{"an exception's name", []string{"! e = 1", "- try:\n    f\nexcept E as e:\n    print(e)"}, ""},
}

// outcome is what becomes of the notebook's cells, as notebookCase.want writes it.
func (c notebookCase) outcome(facts []Facts) string {
	var p Poison
	var found []string
	for i, cell := range c.cells {
		because := p.Skips(&facts[i])
		outcome := map[byte]Outcome{'-': Succeeded, '!': Failed, '~': Tolerated}[cell[0]]
		if len(because) > 0 {
			outcome = Failed
			text := fmt.Sprint(i)
			for _, b := range because {
				text += fmt.Sprintf("(%s of %s)", strings.Join(b.Names, ","), b.Cell)
			}
			found = append(found, text)
		}
		p.Add(fmt.Sprint(i), &facts[i], outcome)
	}
	return strings.Join(found, " ")
}

func TestWhatIsSkipped(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		var sources []string
		for _, c := range poisonCases {
			for _, cell := range c.cells {
				sources = append(sources, cell[2:])
			}
		}
		facts := borrow(t, s).analyse(sources)
		for _, c := range poisonCases {
			got := c.outcome(facts[:len(c.cells)])
			facts = facts[len(c.cells):]
			if got != c.want {
				t.Errorf("%s: skipped %q, want %q", c.name, got, c.want)
			}
		}
	})
}

func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	known := &Facts{Digest: "d", Use: Use{MayStore: []string{"x"}}, Stores: []string{"x"}}
	var p Poison
	p.Add("a", nil, Succeeded)
	if p.Skips(nil) != nil {
		t.Error("a cell was skipped before any failed")
	}
	p.Add("b", known, Failed)
	if because := p.Skips(nil); len(because) != 1 || because[0].Cell != "b" {
		t.Errorf("a cell of which nothing is known is skipped because of %v", because)
	}
	p.Add("c", known, Succeeded)
	if p.Skips(nil) != nil {
		t.Error("a cell was skipped after all names were healed")
	}
	p.Add("d", nil, Failed)
	p.Add("e", known, Succeeded)
	if because := p.Skips(known); len(because) != 1 || because[0].Cell != "d" {
		t.Errorf("after a failed cell of which nothing is known, %v", because)
	}
}

// In notebooks of two parts that share no name, a failure in one skips nothing of the other.
func TestOtherPartsOfANotebookAreNotSkipped(t *testing.T) {
	t.Parallel()
	s := stacks.Old(t)
	k, r := borrow(t, s), seed(3)
	var notebooks []*broken
	for range samples(40) {
		a, b := &writer{r, "x"}, &writer{r, "y"}
		n := &broken{bad: r.IntN(4) * 2}
		for range 6 {
			n.cells = append(n.cells, a.cell(), b.cell())
		}
		notebooks = append(notebooks, n)
	}
	k.findFacts(notebooks)
	for _, n := range notebooks {
		n.well.Statuses = make([]string, len(n.cells))
		n.decide()
		for i := n.bad + 1; i < len(n.cells); i += 2 {
			if n.skip[i] && !opaqueAbove(n, i) {
				t.Errorf("cell %d of the other part is skipped\n%s", i, n)
			}
		}
	}
}

// opaqueAbove reports whether a cell that may read or write anything excuses the skipping of
// cell i.
func opaqueAbove(n *broken, i int) bool {
	for _, f := range n.facts[:i+1] {
		if f.OpaqueRead || f.OpaqueWrite {
			return true
		}
	}
	return false
}
