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


def test_a_new_entry_begins_after_the_confirmed_iterations():
    assert registry.entry_of("a", 5) == {"setup": "", "done": 5}
    assert sys.modules["colab_relay_runs"].runs == {"a": {"setup": "", "done": 5}}


def test_the_kernels_own_count_is_right_where_its_setup_ran():
    registry.entry_of("a", 5)["setup"] = "hash"
    assert registry.entry_of("a", 9)["done"] == 5
    registry.forget_setups()
    assert registry.entry_of("a", 9) == {"setup": "", "done": 9}
    assert registry.entry_of("a", 7)["done"] == 9


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


def test_a_restored_record_names_what_did_not_come_with_it():
    registry.update({"a": {"carried": ["made", "there"], "names": ["made", "there"]}})
    names = {"made": 1, "there": 2, "gone": 3}
    saved = {
        "setup": "h",
        "done": 1,
        "carried": [],
        "names": ["there", "file", "gone"],
        "absent": ["gone"],
    }
    registry.restore({"a": saved, "odd": None}, {"there"}, names)
    assert (
        registry.runs()["a"]["lost"] == ["file", "gone"]
        and registry.runs()["a"]["ran"] == "restored"
    )
    assert names == {"there": 2, "gone": 3}  # made was made later


def test_a_saved_record_says_what_was_changed(monkeypatch):
    registry.update({"a": {"done": 1}, "b": {"lost": ["x"]}, "c": None})
    monkeypatch.setattr(registry, "audits", {"a": lambda: ["y"], "b": lambda: []})
    saved = registry.audited()
    assert [saved["a"], saved["b"]] == [{"done": 1, "lost": ["y"]}, {"lost": ["x"]}]
    assert registry.runs()["a"] == {"done": 1}


def test_only_runs_with_their_variables_are_complete():
    registry.update(
        {
            "done": {"setup": "h", "done": 3},
            "cleared": {"setup": "", "done": 3},
            "odd": {"setup": "h", "done": "3"},
            7: {"setup": "h", "done": 3},
            "none": None,
        }
    )
    assert registry.complete_runs() == [{"key": "done", "done": 3}]
