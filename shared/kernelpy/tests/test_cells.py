"""Which names of a notebook's cells are found."""

import json
import zlib
from base64 import b64encode

import pytest
from colab_relay.cells import facts as module
from colab_relay.cells.facts import facts, of_packed

# What a cell says, and its names: reads, =makes, ==makes by every run.
CASES = [
    ("x = 1", "==x"),
    ("y = x + 1", "x ==y"),
    ("x = 1\nprint(x)", "==x"),
    ("print(x)", "x =x"),
    ("x += 1", "x ==x"),
    ("if a:\n    x = 1", "a =x"),
    ("if a:\n    x = 1\nelse:\n    x = 2", "a ==x"),
    ("for i in rows:\n    total += i", "rows total =i =total"),
    ("for i in range(3):\n    pass\nprint(i)", "=i i"),
    ("while n:\n    n -= 1", "n =n"),
    ("with open(p) as f:\n    text = f.read()", "p =p ==f ==text"),
    ("try:\n    import numpy as np\nexcept ImportError as e:\n    np = None\n    print(e)", "==np"),
    ("import numpy as np, os.path", "==np ==os"),
    ("from m import *", ""),
    ("def f(a):\n    global g\n    g = a + b\n    return c(a)", "b c g ==f =g =c"),
    ("class A(B):\n    k = 1\n    j = k + z\n    def m(self):\n        return w", "B k z w ==A"),
    ("f = lambda a: a + b", "b ==f"),
    ("rows = [r * k for r in data if r]", "data k ==rows"),
    ("model.fit(x, y=labels)", "model x labels =model =x =labels"),
    ("d['k'] = v", "d v =d"),
    ("a.b.c = v", "a v =a"),
    ("del x", "x"),
    ("a, (b, *c) = v", "v ==a ==b ==c"),
    ("print(z := 3)", "==z"),
    ("await get(url)", "get url =get =url"),
    ("!ls {folder} $name", "folder name"),
    ("files = !ls $folder", "folder ==files"),
    ("%time total = slow(x)", ""),
    ("%%bash\necho {a} $HOME", "a HOME"),
    ("ls", "ls"),
    ("# nothing", ""),
    ("x = (", ""),
    ("print('a')\nlen([])", ""),
]


def words(found):
    sure = set(found.get("sure", ()))
    return sorted(
        [*found.get("reads", ())]
        + [("==" if name in sure else "=") + name for name in found.get("makes", ())]
    )


@pytest.mark.parametrize("source, want", CASES, ids=[c[0] for c in CASES])
def test_the_names_of_a_cell(source, want):
    assert words(facts([source])[0]) == sorted(want.split())


def test_a_builtin_that_a_cell_binds_is_a_name():
    assert words(facts(["list = 3", "list"])[1]) == ["list"]


def test_imports_functions_and_classes_are_not_changed_by_their_use():
    cells = facts(["import np\ndef f(): pass", "f(np.a(x))", "x = f = 1", "f(x)"])
    assert words(cells[1]) == ["=f", "=x", "f", "np", "x"]
    assert words(facts(["import np", "np.seed(1)"])[1]) == ["np"]


def test_cells_with_too_many_names_have_none():
    assert facts(["\n".join("x%d = 1" % i for i in range(module.MAX_NAMES + 1))]) == [{}]
    assert (
        len(facts(["\n".join("x%d = 1" % i for i in range(module.MAX_NAMES))])[0]["makes"])
        == module.MAX_NAMES
    )


def test_thousands_of_cells_and_deeply_nested_ones_are_read():
    assert len(facts(["x%d = x%d" % (i + 1, i) for i in range(2000)])) == 2000
    assert facts(["(" * 5000 + ")" * 5000, "x = " + "-" * 50_000 + "1"])[0] == {}


def test_sources_arrive_packed():
    packed = b64encode(zlib.compress(json.dumps({"a": "x = y"}).encode())).decode()
    assert words(of_packed(packed)["a"]) == ["==x", "y"]
