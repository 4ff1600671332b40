"""The record of chunked runs that every release in a kernel shares."""

import sys
import types

import pytest
from colab_relay import registry


@pytest.fixture(autouse=True)
def no_record(monkeypatch):
    monkeypatch.delitem(sys.modules, "colab_relay_runs", raising=False)
    yield
    sys.modules.pop("colab_relay_runs", None)


def test_the_oldest_runs_are_dropped():
    for n in range(registry.MAX_RUNS + 5):
        registry.entry_of(n, 0)
        registry.entry_of("kept", 0)
    assert len(registry.runs()) == registry.MAX_RUNS
    assert "kept" in registry.runs() and 5 not in registry.runs()


@pytest.mark.parametrize("module", [types.ModuleType("x"), types.SimpleNamespace(runs={}), None])
def test_something_else_under_the_name_is_replaced(module):
    sys.modules["colab_relay_runs"] = module
    assert registry.runs() == {}
    registry.entry_of("a", 1)
    assert registry.runs() == {"a": {"setup": "", "done": 1}}
