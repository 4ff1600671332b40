"""What is reported about the user's variables, without running their code."""

import os

import pytest
from colab_relay.variables.listing import MAX_VARIABLES, inspect, variables
from colab_relay.variables.preview import MAX_PREVIEW
from conftest import TESTS


def run_file(shell, name):
    with open(os.path.join(TESTS, name), encoding="utf-8") as file:
        shell.run(file.read())


def preview(name):
    return inspect(name)["preview"]


PREVIEWS = {
    "none": "None",
    "number": "42",
    "huge": "<16610 bits>",
    "text": "'naïve 🙂'",
    "surrogate": r"'\ud800'",
    "items": "[1, 'x', {'k': (1,)}, …]",
    "ordered": "<collections.OrderedDict object> {'a': 1}",
    "point": "<__main__.Point object> (1, 2)",
    "day": "datetime.date(2026, 1, 2)",
    "price": "Decimal('1.20')",
    "matrix": "array(shape=(2, 3), dtype=float64) [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]",
    "empty": "array(shape=(0, 4), dtype=float64) []",
    "series": "Series int64 1, 2, 3",
    "generator": "<generator object>",
    "train": "<function train(x, lr, steps)>",
    "Model": "<class __main__.Model>",
    "model": "<__main__.Model object>",
    "np": "<module object>",
}


def test_previews_show_known_types(shell):
    run_file(shell, "known.py")
    assert {name: preview(name) for name in PREVIEWS} == PREVIEWS
    frame = preview("frame")
    assert frame.startswith("DataFrame of 3 rows, 2 columns\n'x': int64 1, 2, 3\n'y': datetime64[")
    assert "2026-01-02T00:00:00" in frame


HOSTILE = {
    "plain": "<__main__.Plain object>",
    "a_list": "<__main__.AList object> [1, <__main__.Plain object>]",
    "a_str": "<__main__.AStr object> 'text'",
    "an_int": "<__main__.AnInt object> 7",
    "nested": "{'deep': [<__main__.Plain object>, (<__main__.Plain object>,)]}",
}


def test_no_code_of_the_users_runs(shell):
    run_file(shell, "hostile.py")
    listed = variables()
    assert listed["count"] >= 15
    for variable in listed["variables"]:
        assert preview(variable["name"]) not in ("", "…"), variable["name"]
    assert {name: preview(name) for name in HOSTILE} == HOSTILE
    assert shell.names["_ran"] == []
    with pytest.raises(RuntimeError):
        len(shell.names["a_list"])
    assert shell.names["_ran"] == ["__len__"], "the spies do not notice what runs"


LARGE = """
import numpy as np, pandas as pd
long_list = list(range(1_000_000))
long_text = "é" * 50_000_000
texts = ["x" * 10_000] * 3
deep = []
for _ in range(100_000):
    deep = [deep]
wide = [[[[[[1] * 500] * 500] * 500] * 500] * 500] * 500
cyclic = {}
cyclic["me"] = cyclic
many = dict.fromkeys(range(1_000_000))
big = np.zeros((10_000, 10_000), dtype=np.int8)
dims = np.zeros((2,) * 30, dtype=np.int8)
strings = np.array(["x" * 100_000] * 3)
frame = pd.DataFrame(np.zeros((10, 20_000)))
number = 1 << 100_000_000
raw = bytearray(50_000_000)
"""
LARGE_NAMES = "long_list long_text texts deep wide cyclic many big dims strings frame number raw"


def test_previews_are_bounded(shell):
    shell.run(LARGE)
    for name in LARGE_NAMES.split():
        got = preview(name)
        assert 4 <= len(got.encode()) <= MAX_PREVIEW, name
        assert "…" in got or name == "number", name
    assert preview("deep") == "[[[[[[…]]]]]]"
    assert preview("cyclic") == "{'me': …}"
    names = shell.names
    while names["deep"]:  # its own end would recurse too deeply
        names["deep"] = names["deep"].pop()


def test_variables_past_the_bound_are_counted(shell):
    shell.run("globals().update({f'v{i:04}': i for i in range(1500)})")
    shell.names.update({7: 1, "\ud800": 2})
    listed = variables()
    assert listed["count"] == 1501 and len(listed["variables"]) == MAX_VARIABLES
    assert listed["variables"][-1]["name"] == "v0999"


def test_a_missing_name_is_reported(shell):
    shell.run("good = 1")
    for name in ["", "missing", "good.real", "\x00", "x" * 100_000]:
        assert inspect(name) == {"missing": True}


KNOWN = {
    "none": {"type": "NoneType"},
    "number": {"type": "int"},
    "text": {"type": "str", "size": 7},
    "items": {"type": "list", "size": 4},
    "table": {"type": "dict", "size": 2},
    "point": {"type": "Point", "size": 2},
    "matrix": {"type": "ndarray", "size": 2, "shape": [2, 3], "dtype": "float64", "bytes": 48},
    "scalar": {"type": "float32", "shape": [], "dtype": "float32", "bytes": 4},
    "frame": {"type": "DataFrame", "size": 3, "shape": [3, 2], "bytes": 48},
    "series": {"type": "Series", "size": 3, "shape": [3], "dtype": "int64", "bytes": 24},
    "train": {"type": "function"},
    "model": {"type": "Model"},
}


def test_variables_are_described(shell):
    run_file(shell, "known.py")
    listed = variables()
    names = [variable["name"] for variable in listed["variables"]]
    assert names == sorted(names) and listed["count"] == len(names)
    assert not {"np", "math", "collections", "In", "Out", "exit", "get_ipython", "_"} & set(names)
    for variable in listed["variables"]:
        name = variable.pop("name")
        if name in ("number", "text", "items"):
            assert variable["bytes"] > 0, name
        if name in KNOWN:
            described = {key: value for key, value in variable.items() if value is not None}
            if "bytes" not in KNOWN[name]:
                described.pop("bytes", None)  # Python's own overhead
            assert described == KNOWN[name], name
