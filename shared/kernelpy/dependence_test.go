package kernelpy

import (
	"fmt"
	"testing"
)

// Each body by itself, told by syntax alone.
func TestCarriedNames(t *testing.T) {
	check(t, "carried.py", []body{
		// Bound anew.
		{"accumulator", "", "total += i", "total"},
		{"long form", "", "total = total + i", "total"},
		{"order of a statement", "", "a, b = b, a + b", "a b"},
		{"read after the store", "", "x = i\ny = x + 1\nprint(y)", ""},
		{"read before the store", "", "print(x)\nx = i", "x"},
		{"read only", "", "print(scale * i)", ""},
		{"stored only", "", "x = i", ""},
		{"stored under a condition and not read", "", "if i > 3:\n    best = i", ""},
		{"stored under a condition, then read", "", "if i > 3:\n    best = i\nprint(best)", "best"},
		{"stored on both ways", "", "if i > 3:\n    x = 1\nelse:\n    x = 2\nprint(x)", ""},
		{"the other way leaves", "", "if i > 3:\n    x = 1\nelse:\n    continue\nprint(x)", ""},
		{"the other way raises", "", "if i < 3:\n    raise ValueError\nelse:\n    x = 1\nprint(x)", ""},
		{"best of all", "", "if best is None or i > best:\n    best = i", "best"},
		{"conditional expression", "", "x = x if i else 1", "x"},
		{"i is given", "", "i += 1\nprint(i)", ""},
		{"result is given out", "", "result = i", ""},
		{"result is read", "", "result = result + i", "result"},
		{"result of an accumulator", "", "total += i\nresult = total", "total"},
		{"annotated", "", "x: int = i\nprint(x)", ""},
		{"annotated, not stored", "", "x: int\nprint(x)\nx = 1", "x"},
		{"walrus", "", "if (n := i) > 2:\n    print(n)", ""},
		{"walrus after a read", "", "print(n)\n(n := i)", "n"},
		{"walrus that may be skipped", "", "ok = i and (n := i)\nprint(n)", "n"},
		{"walrus in a comprehension", "", "xs = [(last := j) for j in range(i)]\nprint(last)", "last"},
		{"unpacked", "", "(a, *b), c = divmod(i, 3)\nprint(a, b, c)", ""},
		{"for target", "", "for j in range(3):\n    print(j)", ""},
		{"for target read after", "", "for j in range(i):\n    pass\nprint(j)", "j"},
		{"for target read before", "", "print(j)\nfor j in range(3): pass", "j"},
		{"sum in an inner loop", "", "s = 0\nfor j in range(3):\n    s += j\nresult = s", ""},
		{"sum that no iteration begins", "", "for j in range(3):\n    s += j", "s"},
		{"while", "", "n = 3\nwhile n:\n    n -= 1", ""},
		{"while of before", "", "while n:\n    n -= 1", "n"},
		{"with target", "", "with open('f') as f:\n    f.write('x')", ""},
		{"with body", "", "with lock:\n    x = i\nprint(x)", ""},
		{"with suppress", "", "from contextlib import suppress\nwith suppress(KeyError):\n    x = d[i]\nprint(x)", "x"},
		{"except target", "", "try:\n    f(i)\nexcept ValueError as e:\n    print(e)", "f"},
		{"except target read after", "", "try:\n    pass\nexcept ValueError as e:\n    pass\nprint(e)", "e"},
		{"stored in try only", "", "try:\n    x = int(i)\nexcept ValueError:\n    pass\nprint(x)", "x"},
		{"stored in try and except", "", "try:\n    x = int(i)\nexcept ValueError:\n    x = 0\nprint(x)", ""},
		{"try that leaves", "", "try:\n    x = int(i)\nexcept ValueError:\n    continue\nprint(x)", ""},
		{"finally", "", "try:\n    pass\nfinally:\n    x = 1\nprint(x)", ""},
		{"first by NameError", "", "try:\n    n += 1\nexcept NameError:\n    n = 1", "n"},
		{"del of the iteration's own", "", "x = i\ndel x", ""},
		{"del of before", "", "del x", "x"},
		{"read after del", "", "x = 1\ndel x\nprint(x)", "x"},
		{"import", "", "import math\nprint(math.pi)", ""},
		{"from import", "", "from math import pi\nprint(pi)", ""},

		// Changed in place.
		{"append", "", "xs.append(i)", "xs"},
		{"append to the iteration's own", "", "xs = []\nxs.append(i)", ""},
		{"subscript", "", "d[i] = 1", "d"},
		{"slice", "", "d[i:i + 2] = [1, 2]", "d"},
		{"augmented subscript", "", "d['n'] += i", "d"},
		{"attribute", "", "x.attr = i", "x"},
		{"augmented attribute", "", "x.y.count += i", "x"},
		{"deep", "", "a.b[i].c = 1", "a"},
		{"del of an item", "", "del d[i]", "d"},
		{"bare method", "", "model.step()", "model"},
		{"method whose value is used", "", "x = stack.pop()", "stack"},
		{"method of a part", "", "rows[i].sort()", "rows"},
		{"next", "", "x = next(it)", "it"},
		{"setattr", "", "setattr(x, 'y', i)", "x"},
		{"a call that nobody needs the value of", "import random", "random.shuffle(xs)", "xs"},
		{"a library's function whose value is used", "import numpy as np", "y = np.sum(data)", ""},
		{"heappop", "import heapq", "x = heapq.heappop(h)", "h"},
		{"heappush by name", "from heapq import heappush", "heappush(h, i)", "h"},
		{"out=", "import numpy as np", "y = np.add(a, 1, out=b)", "b"},
		{"inplace=", "", "y = df.drop(i, inplace=True)", "df"},
		{"builtins", "", "print(len(xs), max(1, i), repr(d), str(x))", ""},
		{"builtins that may use up an iterator", "", "print(sum(xs))", "xs"},
		{"a module", "import matplotlib.pyplot as plt", "plt.plot([i])\nplt.show()", ""},
		{"what is on a module", "import mod", "mod.things[i].go()", ""},
		{"another name for it", "", "row = rows[i]\nrow.append(1)", "rows"},
		{"another name for all of it", "", "mine = xs\nmine += [i]", "xs"},
		{"items of a loop", "", "for row in rows:\n    row.append(i)", "rows"},
		{"items of a comprehension", "", "[row.append(i) for row in rows]", "rows"},
		{"held by an object", "", "t = Thing(xs)\nt.run()", "Thing xs"},
		{"chosen", "", "x = a if i else b\nx.append(1)", "a b"},
		{"format of a constant", "", "print('{} {}'.format(LIFE, i))", ""},

		// Functions.
		{"global of a function", "total = 0\ndef add(i):\n    global total\n    total += i", "add(i)", "total"},
		{"global read", "scale = 2\ndef f(i):\n    return scale * i", "print(f(i))", ""},
		{"global changed in place", "xs = []\ndef add(i):\n    xs.append(i)", "add(i)", "xs"},
		{"by way of another function", "xs = []\ndef add(i):\n    xs.append(i)\ndef more(i):\n    add(i)", "more(i)", "xs"},
		{"functions in a circle", "n = 0\ndef a(i):\n    return b(i - 1)\ndef b(i):\n    global n\n    n += 1\n    return i and a(i)", "a(i)", "n"},
		{"its own local of that name", "def f(i):\n    total = 0\n    total += i\n    return total", "x = f(i)", ""},
		{"defined in the iteration", "", "def f():\n    global n\n    n += 1\nf()", "n"},
		{"not called, only handed on", "n = 0\ndef f():\n    global n\n    n += 1", "run(f)", "f n run"},
		{"of a parameter", "def f(m):\n    m.append(1)", "f(xs)", "xs"},
		{"of another parameter", "def f(m, n):\n    m.append(len(n))", "f([], xs)", ""},
		{"of a parameter by name", "def f(a, *, m):\n    m.x = a", "y = f(1, m=model)", "model"},
		{"of parameters unknown", "def f(*a):\n    return len(a)", "f(xs)", "xs"},
		{"pure function", "def parse(line):\n    return line[0] + 'x'", "x = parse(lines[i])", ""},
		{"lambda", "add = lambda x: xs.append(x)", "add(i)", "xs"},
		{"lambda in place", "", "run(lambda: xs.append(i))", "run xs"},
		{"closure", "def make():\n    n = 0\n    def count():\n        nonlocal n\n        n += 1\n        return n\n    return count\ncount = make()", "x = count()", "count"},
		{"class", "class A:\n    def __init__(self):\n        global n\n        n += 1", "a = A()", "n"},
		{"method of a known class", "class A:\n    def go(self):\n        xs.append(1)\na = A()", "y = a.go()", "a xs"},
		{"unknown function", "", "x = step(model)", "model step"},
		{"comprehension's own names", "", "ys = [x for x in range(i)]\nx = 1", ""},
		{"default of a parameter", "", "def f(n=n):\n    pass\nn = i", "n"},
		{"class body", "", "class A:\n    x = 1\n    y = x\nprint(x)", ""},

		// More than syntax tells.
		{"exec", "", "exec('n += 1')", "opaque"},
		{"eval", "", "x = eval(text)", "opaque"},
		{"globals", "", "globals()['n'] += 1", "opaque"},
		{"star import", "", "from math import *", "opaque"},
		{"environ", "import os", "os.environ['N'] = str(i)", "opaque"},
		{"chdir", "import os", "os.chdir('x')", "opaque"},
		{"opaque in a function", "def f():\n    exec('n = 1')", "f()", "opaque"},
		{"a magic", "", "%pip install x", "opaque"},
		{"a cell magic", "", "%%writefile f\nx", "opaque"},
		{"%time", "", "%time total += i", "total"},
		{"%%time", "", "%%time\nxs.append(i)", "xs"},
		{"%%capture into a name", "", "%%capture out\nn += 1", "n"},
		{"!", "", "!echo {i} $total", ""},
		{"! into a name", "", "files = !ls\nprint(files)", ""},
		{"! of what changes", "", "!echo {total}\ntotal = i", "total"},
		{"exec of the set-up", "exec('total = 0')", "total += i", "total"},
	})
}

// A program with very many functions and names must end soon too.
func TestManyFunctionsThatNameEachOther(t *testing.T) {
	setup, loop := "n = 0\n", ""
	const functions = 60
	for f := range functions {
		setup += "def f" + digits(f) + "(x):\n    global n\n    n += 1\n"
		for g := range functions {
			setup += "    f" + digits(g) + "(x)\n"
		}
		loop += "f" + digits(f) + "(i)\n"
	}
	many := ""
	for f := range 1001 {
		many += "v" + digits(f) + " += i\n"
	}
	check(t, "carried.py", []body{
		{"functions in circles", setup, loop, "n opaque"},
		{"one variable past the bound", "", many, "opaque"},
	})
}

func digits(n int) string { return fmt.Sprintf("%04d", n) }

// After the set-up, by the values that names have.
func TestCarriedNamesAsTheirValuesAllow(t *testing.T) {
	check(t, "settled.py", []body{
		{"a list of texts", "files = ['a', 'b']", "x = load(files[i])", ""},
		{"a list of lists", "rows = [[], []]", "x = load(rows[i])", "rows"},
		{"text", "line = 'a b'", "x = line.split()\nrun(line)", ""},
		{"a list read by a method", "xs = [1, 2]", "x = xs.index(1)", ""},
		{"a list popped", "xs = [1, 2]", "x = xs.pop()", "xs"},
		{"a dict asked", "d = {1: []}", "x = d.get(i)", ""},
		{"a dict that grows", "d = {}", "x = d.setdefault(i, [])", "d"},
		{"items with methods of their own", "d = {1: []}", "d[1].append(i)", "d"},
		{"an array's mean", "import numpy as np\na = np.ones(9)", "x = a.mean()", ""},
		{"an array sorted", "import numpy as np\na = np.ones(9)", "a.sort()", "a"},
		{"a frame read", "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})", "x = df.head()\ny = df['a'].mean()", ""},
		{"a frame changed", "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})", "df.loc[i] = 3", "df"},
		{"a generator of random numbers", "import numpy as np\nrng = np.random.default_rng(1)", "x = rng.normal()", "rng"},
		{"a list looped over", "xs = [1, 2]", "for x in xs: print(x)", ""},
		{"an iterator looped over", "it = iter([1, 2])", "for x in it: break", "it"},
		{"a function", "def make():\n    return lambda x: x\nf = make()", "x = f(i)", ""},
		{"a function that counts", "def make():\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n    return f\nf = make()", "f()", "f"},
		{"a class that counts", "class Stats:\n    n = 0", "Stats.n += 1", "Stats"},
		{"a module's alias", "import math\nm = math", "x = m.sqrt(i)", ""},
		{"another name for it", "xs = []\nview = xs\nother = []", "xs.append(i)\nprint(view)", "view xs"},
		{"an object that holds it", "class M: pass\nmodel, alone = M(), M()\nmodel.w = [1]\nopt = M()\nopt.params = [model.w]", "opt.step()", "model opt"},
		{"a view of an array", "import numpy as np\na = np.zeros(9)\nhead = a[:3]\nb = np.zeros(3)", "head[0] += i", "a head"},
		{"a number changes under no other name", "base = 10\nn = 0", "x = base\nx += i\nn += x", "n"},
		{"a logger leads nowhere", "import logging\nclass M: pass\na, b = M(), M()\na.log = b.log = logging.getLogger('x')", "a.n = i", "a"},
	})
}
