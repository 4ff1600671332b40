"""What is found out about the cells of a notebook."""

import ast
import glob
import json
import os
import random
import symtable
import sys
import sysconfig
import zlib
from base64 import b64encode

import pytest
from colab_relay.cells import facts as module
from colab_relay.cells.facts import facts, of_packed
from colab_relay.cells.functions import Function
from test_carried import TESTS

MAGICS = {"ls", "cd", "time"}


def cases(file):
    with open(os.path.join(TESTS, file), encoding="utf-8") as f:
        sections = f.read().split("== ")[1:]
    found = []
    for section in sections:
        name, _, body = section.partition("\n")
        source, _, want = body.rpartition("=>")
        found.append(pytest.param(source.rstrip("\n"), want.strip(), id=name))
    return found


def words(found):
    """The facts as in cells.txt."""
    if "problem" in found:
        return "problem"
    stores = set(found.get("stores", ()))
    all_words = list(found.get("reads", ())) + ["=" + name for name in sorted(stores)]
    all_words += ["~" + name for name in found.get("may_store", ()) if name not in stores]
    opaque = [key[len("opaque") :] for key in ("opaque_read", "opaque_write") if key in found]
    all_words += ["opaque" + "".join(opaque).replace("_read_write", "").replace("_", "-")] * bool(
        opaque
    )
    all_words += ["!" + name for name in found.get("changes", ())]
    all_words += ["." + name for name in found.get("methods", ())]
    return " ".join(all_words)


def one(source):
    return facts([source], MAGICS)[0]


def same(got, want):
    return sorted(got.split()) == sorted(want.split())


@pytest.mark.parametrize("source, want", cases("cells.txt"))
def test_what_a_cell_reads_and_writes(source, want):
    assert same(words(one(source)), want), words(one(source))


@pytest.mark.parametrize("source, want", cases("cells_match.txt"))
def test_what_newer_syntax_reads_and_writes(source, want):
    try:
        ast.parse(source)
    except SyntaxError:  # this Python does not have it, so it is a syntax error of the cell
        want = "problem"
    assert same(words(one(source)), want), words(one(source))


def test_all_cases_are_read():
    assert len(cases("cells.txt")) == 89
    assert len(cases("cells_match.txt")) == 3


def test_a_function_tells_what_it_does_when_it_is_called():
    source = "def f(q):\n  global n\n  n = g(h)\n  log.show(q)\n  for row in q:\n    row.x = 1"
    assert one(source)["functions"]["f"] == {
        "reads": ["g", "h", "log"],
        "may_store": ["n"],
        "methods": ["log"],
        "calls": {"g": {"passed": ["h"]}, "log": {}},
        "changes_arguments": True,
    }


LASTING = {
    "def f():\n    return 1": False,
    "def f():\n    yield 1": True,
    "def f():\n    def g(): pass\n    return g": True,
    "def f():\n    return g": True,
    "def f():\n    return g()": False,
    "def f():\n    return lambda: 1": True,
    "async def f():\n    pass": True,
    "class f: pass": True,
    "@d\ndef f(): pass": True,
    "f = lambda: 1": False,
}


@pytest.mark.parametrize("source", LASTING)
def test_what_may_be_called_later(source):
    assert one(source)["functions"]["f"].get("lasting", False) is LASTING[source]


def test_a_value_knows_what_it_was_made_from():
    found = one("m = Model(net, lr=rate)\nr = f(m2)\nq = [a, b.c]\nd['k'] = e\nx = y + z")
    assert found["origins"] == {
        "m": {"same": ["net", "rate"], "passed": ["net", "rate"], "called": ["Model"]},
        "r": {"passed": ["m2"], "called": ["f"]},
        "q": {"same": ["a", "b"]},
        "d": {"same": ["e"]},
    }


def test_a_call_knows_what_was_bound_before_each_use_of_the_function():
    found = one("x = 1\nf(a)\ny = 2\nf()")
    assert found["calls"]["f"] == {"bound": ["x"], "passed": ["a"], "bare": True}


@pytest.mark.parametrize(
    "other, is_same",
    [
        ("x=1 # why\n\n\ny  =  (2)", True),
        ("x = 1; y = 2;", True),
        ("x = 1\ny = 3", False),
        ("y = 2\nx = 1", False),
        ("%time x = 1\ny = 2", False),
    ],
)
def test_comments_and_format_do_not_change_the_digest(other, is_same):
    assert (one(other)["digest"] == one("x = 1\ny = 2")["digest"]) is is_same


def test_the_digest_of_an_unreadable_cell_is_that_of_its_text():
    assert one("x = (")["digest"] != one("x = ( ")["digest"]
    assert one("x = (")["digest"] == one("x = (")["digest"]


DEEP = {
    "parentheses": "(" * 5000 + ")" * 5000,
    "operators": "x = " + "-" * 50000 + "1",
    "attributes": "x" + ".y" * 50000,
    "calls": "x" + "()" * 20000,
    "sums": "x = " + "+".join(["1"] * 50000),
    "blocks": "\n".join(" " * n + "if x:" for n in range(99)) + "\n" + " " * 99 + "y = 1",
    "lambdas": "x = " + "lambda: " * 2000 + "1",
    "NUL": "x = '\x00'",
    "surrogate": "x = '\ud800'",
    "huge number": "x = 0x" + "f" * 100000,
    "magics": "%time " * 500 + "x = 1",
}


@pytest.mark.parametrize("name", DEEP)
def test_no_source_breaks_the_reader(name):
    found = one(DEEP[name])
    assert len(found["digest"]) == 64
    assert "problem" in found or name in (
        "blocks",
        "magics",
        "huge number",
        "surrogate",
        "operators",
    )


def test_a_bad_cell_does_not_affect_the_others():
    found = facts(["x = y", "x = (", DEEP["sums"], "z = x"])
    assert [words(f) for f in found] == ["y =x", "problem", "problem", "x =z"]


def test_bounds(monkeypatch):
    assert all("problem" in f for f in facts(["x"] * (module.MAX_CELLS + 1)))
    assert len(facts(["x"] * (module.MAX_CELLS + 1))) == module.MAX_CELLS
    assert facts(["#" * module.MAX_CHARS, "x"])[1]["problem"] == "the notebook is too long"
    assert "problem" not in facts(["#" * (module.MAX_CHARS - 1), "x"])[1]
    assert "too many names" in one("\n".join("v%d = 1" % n for n in range(5001)))["problem"]
    assert "problem" not in one("\n".join("v%d = 1" % n for n in range(5000)))
    assert "too many names" in one("x" * 201 + " = 1")["problem"]
    assert "too long" in facts(["x = y"], seconds=-1)[0]["problem"]
    assert facts(["x = y"], seconds=-1)[0]["passing"] and "passing" not in one("x = ")
    monkeypatch.setattr(module, "MAX_ANSWER", 2 * len(json.dumps(one("x = y"))) + 1)
    assert ["problem" in f for f in facts(["x = y", "y = z", "z = a", "b = c"])] == [
        False,
        False,
        True,
        True,
    ]


def test_nothing_of_the_user_runs(shell):
    shell.run(
        "ran = []\n"
        "class Trap:\n"
        "    def __getattribute__(self, name):\n        ran.append(name)\n"
        "trap = Trap()\n"
        "def transform(lines):\n    ran.append(lines)\n    return lines\n"
        "get_ipython().input_transformers_post.append(transform)\n"
        "get_ipython().input_transformers_cleanup.append(transform)\n"
        "del ran[:]"
    )
    shell.names["ran"].clear()
    sources = [
        "trap.x.y",
        "trap.x.y?",
        "%time trap.x",
        "exec('ran.append(1)')",
        "ls",
        "!echo {trap.x}",
    ]
    packed = b64encode(zlib.compress(json.dumps(sources).encode())).decode()
    found = of_packed(packed)
    assert [words(f) for f in found][:3] == ["trap", "trap", "trap"] and len(found) == 6
    assert words(found[4]) == "opaque"
    assert shell.names["ran"] == []


def test_the_kernel_s_variables_are_no_magics(shell):
    shell.run("ls = 1")
    packed = b64encode(zlib.compress(json.dumps(["ls"]).encode())).decode()
    assert words(of_packed(packed)[0]) == "ls"


DEMANDS = {
    "from google.colab import drive\ndrive.mount('/content/drive')": "google.colab drive.mount",
    "import google.colab\ngoogle.colab.files.upload()": "google.colab files.upload",
    "from google.colab import userdata as secrets\nsecrets.get('KEY')": "google.colab userdata.get",
    "from google.colab.auth import authenticate_user as login\nlogin()": (
        "auth.authenticate_user google.colab"
    ),
    "from google.colab import data_table": "google.colab",
    "drive.mount(x)": "drive.mount",
    "files.sort()": "",
    "net.to('cuda')": "+gpu",
    "net.to(device='cuda:1')": "+gpu",
    "net.cuda()": "+gpu",
    "with tf.device('/GPU:0'): pass": "+gpu",
    "import cudf": "+gpu",
    "!nvidia-smi": "+gpu",
    "tf.distribute.cluster_resolver.TPUClusterResolver()": "+tpu",
    "jax.devices('tpu')": "+tpu",
    "import torch_xla.core.xla_model as xm": "+tpu",
    "d = torch.device('cuda' if torch.cuda.is_available() else 'cpu')": "",
    "if torch.cuda.is_available():\n    net.cuda()": "",
    "print(torch.cuda.is_available())": "",
    "tf.config.list_physical_devices('GPU')": "",
    "print('all of cuda')": "",
}


@pytest.mark.parametrize("source", DEMANDS)
def test_what_a_cell_needs_besides_python(source):
    found = one(source)
    got = found.get("page_calls", []) + ["+" + name for name in found.get("accelerators", [])]
    assert sorted(got) == sorted(DEMANDS[source].split())


def library():
    """Files of the standard library, the same ones in every run."""
    files = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))
    return random.Random(1).sample(files, 40)


def globals_by_symtable(table):
    """The global names that a function of a symbol table, or one inside it, reads."""
    names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    for child in table.get_children():
        names |= globals_by_symtable(child)
    return names


def test_functions_read_the_globals_that_python_s_symbol_table_names():
    compared = 0
    for path in library():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        functions = {
            (node.name, node.lineno): node
            for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef) and not node.decorator_list
        }
        for table in symtable.symtable(text, path, "exec").get_children():
            node = functions.get((table.get_name(), table.get_lineno()))
            if node is None or table.get_type() != "function":
                continue
            compared += 1
            got = Function(node).use.reads
            missing = globals_by_symtable(table) - got - {"print"}
            assert not missing, (path, node.name, missing)
            more = got - globals_by_symtable(table) - own_annotations(node)
            assert not more, (path, node.name, more)
    assert compared > 200


def own_annotations(node):
    """Names in annotations and defaults of inner definitions, and what classes find globally."""
    return {
        inner.id
        for child in ast.walk(node)
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and child is not node
        for inner in ast.walk(child)
        if isinstance(inner, ast.Name)
    }


def test_the_standard_library_is_understood():
    for path in library():
        with open(path, encoding="utf-8") as file:
            found = one(file.read())
        assert "problem" not in found or "too many names" in found["problem"], path
    assert sys.getrecursionlimit() >= 1000
