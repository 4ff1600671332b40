"""Tests which variables iterations pass on, judged from code and from values."""

import os

import pytest
from colab_relay.chunked.dependence import carried
from colab_relay.live import narrow, sharers
from conftest import TESTS
from IPython.core.inputtransformer2 import TransformerManager


def cases(file):
    """The cases of a file: "== name", setup code, "--" if there is some, loop code, "=> names"."""
    with open(os.path.join(TESTS, file), encoding="utf-8") as f:
        sections = f.read().split("\n== ")[1:]
    found = []
    for section in sections:
        name, _, body = section.partition("\n")
        code, _, names = body.rpartition("\n=>")
        setup, _, loop = code.rpartition("\n--\n")
        found.append(pytest.param(setup, loop, names.partition("\n")[0].strip(), id=name))
    return found


def found(setup, loop):
    return carried(setup, loop, TransformerManager().transform_cell)


def words(names, opaque):
    """The names, and the word "opaque" if the code may pass on more than the analysis finds."""
    return " ".join(list(names) + ["opaque"] * bool(opaque))


@pytest.mark.parametrize("setup, loop, want", cases("carried.txt"))
def test_names_by_syntax_alone(setup, loop, want):
    result = found(setup, loop)
    assert words(result["names"], result["opaque"]) == want


@pytest.mark.parametrize("setup, loop, want", cases("narrowed.txt"))
def test_names_as_their_values_allow(setup, loop, want):
    result = found(setup, loop)
    names = {"__name__": "__main__"}
    exec(setup, names)
    narrowed = narrow(result["names"], names)
    assert words(sharers(narrowed, names), result["opaque"]) == want


def test_all_cases_are_read():
    assert len(cases("carried.txt")) == 116
    assert len(cases("narrowed.txt")) == 24


def test_many_functions_that_call_each_other_end_soon():
    functions = range(40)
    setup, loop = "n = 0\n", ""
    for f in functions:
        setup += "def f%d(x):\n    global n\n    n += 1\n" % f
        setup += "".join("    f%d(x)\n" % g for g in functions)
        loop += "f%d(i)\n" % f
    result = found(setup, loop)
    assert words(result["names"], result["opaque"]) == "n opaque"


def test_one_variable_past_the_bound():
    result = found("", "".join("v%d += i\n" % v for v in range(1001)))
    assert words(result["names"], result["opaque"]) == "opaque"
