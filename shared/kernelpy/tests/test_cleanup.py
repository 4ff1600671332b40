"""What a cleanup deletes, and what it leaves."""

import sys

import pytest
from colab_relay.cleanup import cleanup


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
