"""What a cleanup deletes, and what it leaves."""

import os
import sys

import pytest
from colab_relay.cleanup import cleanup
from colab_relay.variables.listing import variables
from conftest import TESTS


def test_an_empty_namespace_loads_nothing(shell, monkeypatch):
    for library in ("matplotlib.pyplot", "torch", "numpy", "pandas"):
        monkeypatch.delitem(sys.modules, library, raising=False)
    before = set(sys.modules)
    assert cleanup() == {
        "variables_cleared": 0,
        "cleared_variables": [],
        "figures_closed": 0,
        "gpu_cache_cleared": False,
    }
    assert set(sys.modules) == before


def test_variables_go_and_a_bounded_number_is_named(shell):
    shell.run("globals().update({f'v{i:04}': i for i in range(1500)})")
    report = cleanup()
    assert report["variables_cleared"] == 1500 and len(report["cleared_variables"]) == 1000
    assert "v0000" not in shell.names


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_object_that_fails_as_it_goes_stops_nothing(shell):
    shell.run("class Stubborn:\n    def __del__(self): raise RuntimeError('will not go')")
    shell.run("a, b = Stubborn(), 1")
    assert cleanup()["variables_cleared"] == 3
    assert "b" not in shell.names


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_the_user_made_goes(shell, monkeypatch):
    for name in ("torch", "torch.cuda"):
        monkeypatch.setitem(sys.modules, name, None)  # which the cell replaces
    with open(os.path.join(TESTS, "cleaned.py"), encoding="utf-8") as file:
        shell.run(file.read())
    shell.run("kept")  # held by Out and _
    shell.run("'another'")  # and by __
    count = shell.ipython.execution_count
    report = cleanup()
    cleared = report["cleared_variables"]
    assert {"stubborn", "returning", "kept", "cycle", "exit", "Big"} <= set(cleared)
    assert "plt" not in cleared and len(cleared) == report["variables_cleared"]
    assert report["figures_closed"] == 2 and report["gpu_cache_cleared"]
    names = shell.names
    assert names["_calls"] == ["del", "empty_cache"]
    assert [ref() for ref in names["_alive"]] == [None, None]
    assert (names["Out"], names["_"], names["__"], names["___"]) == ({}, "", "", "")
    assert names["plt"].get_fignums() == []
    assert names["In"][-2:] == ["kept", "'another'"]
    assert shell.ipython.execution_count == count
    assert variables()["count"] == 0
    shell.run("assert exit is quit or callable(exit)")
