"""The data file: what is shared stays shared, and a variable that fails does not affect others."""

import os
import pickle
import sys
import types

import numpy as np
import pytest
from colab_relay.state import rebuild
from colab_relay.state.arrays import Sharing
from colab_relay.state.read import Reader
from colab_relay.state.reasons import CannotSave, Damaged, reason
from colab_relay.state.write import Bounds, OutOfTime, Saver


@pytest.fixture(autouse=True)
def importable():
    with rebuild.importable():
        yield


def write(path, bounds=None, **variables):
    """Saves variables and returns the reasons of those that were skipped, and the digest."""
    saver = Saver(str(path), list(variables.values()), bounds)
    skipped = {}
    for name, value in variables.items():
        try:
            saver.add({"name": name}, value)
        except Exception as e:
            skipped[name] = reason(e, saver.doing())
    index = {"python": "3", "pickler": saver.kind, "modules": [], "libraries": {}}
    _, digest = saver.finish(index)
    return skipped, digest


def read(path, digest=None):
    """Loads all variables and returns them, and the errors of the others."""
    reader, loaded, failed = Reader(str(path), os.path.getsize(path), digest), {}, {}
    for segment in reader.index["segments"]:
        try:
            loaded[segment["name"]] = reader.load(segment)
        except Exception as e:
            failed[segment["name"]] = reason(e, "loading it")
    reader.close()
    return loaded, failed


class Refuses:
    def __reduce__(self):
        raise ValueError("no way")


class Breaks:
    """Can be saved, and fails to load once broken is True."""

    broken = False

    def __setstate__(self, state):
        if Breaks.broken:
            raise RuntimeError("it broke")

    def __getstate__(self):
        return {"state": 1}


def test_a_variable_that_cannot_be_loaded_affects_only_those_that_share_it(tmp_path, monkeypatch):
    shared, array = ["shared"], np.arange(100_000)
    broken = [shared, ["own"], Breaks(), array]
    write(tmp_path / "f", a=broken, b=broken[1], c={"a": broken}, d=[shared, array], e="apart")
    monkeypatch.setattr(Breaks, "broken", True)
    loaded, failed = read(tmp_path / "f")
    assert failed["a"] == "RuntimeError: it broke"
    assert failed["c"] == "it shares an object with a variable that can't be restored"
    assert sorted(loaded) == ["b", "d", "e"] and loaded["b"] == ["own"] and loaded["e"] == "apart"
    assert loaded["d"][0] == ["shared"] and loaded["d"][1].sum() == array.sum()


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda data: data[:-1], "it does not have the recorded size"),
        (lambda data: data[:40] + b"!" + data[41:], "its SHA-256 is not the recorded one"),
        (lambda data: b"?" + data[1:], "it is not a kernel state that this release can read"),
    ],
)
def test_a_damaged_file_is_not_unpickled(tmp_path, monkeypatch, damage, message):
    _, digest = write(tmp_path / "f", a=list(range(100)))
    data = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(damage(data))
    monkeypatch.setattr(pickle, "Unpickler", None)
    with pytest.raises(Damaged, match=message):
        Reader(str(tmp_path / "f"), len(data), digest)


def test_the_bounds_of_a_file(tmp_path):
    skipped, _ = write(tmp_path / "f", Bounds(1 << 20), small=[1], large=bytes(2 << 20))
    assert skipped == {"large": "together they are over 1 MB"}
    with pytest.raises(OutOfTime):
        write(tmp_path / "g", Bounds(seconds=-1), a=[1])


def test_views_are_saved_with_their_owner_only_if_that_is_worth_it():
    owner = np.zeros(100_000)
    tenth, half, other_half = owner[:10_000], owner[:50_000], owner[50_000:]
    assert Sharing([tenth]).owner(tenth) is None
    assert Sharing([owner, tenth]).owner(tenth) is owner
    assert Sharing([half, other_half]).owner(half) is owner
    assert Sharing([[{"deep": tenth}], owner]).owner(tenth) is owner
    assert Sharing([owner]).owner(owner) is None


class Tensor:
    """As much of one of torch, which no stack has, as its gradient needs."""

    __module__ = "torch"
    is_leaf, grad = True, None

    def __reduce_ex__(self, protocol):
        return type(self), ()


def test_gradients_are_kept_though_torch_leaves_them_out(tmp_path, monkeypatch):
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    monkeypatch.setitem(sys.modules, "torch", torch)
    x = Tensor()
    x.grad = Tensor()
    assert write(tmp_path / "f", x=x, grad=x.grad)[0] == {}
    loaded, _ = read(tmp_path / "f")
    assert type(loaded["grad"]) is Tensor and loaded["x"].grad is loaded["grad"]


class Says(Exception):
    def __str__(self):
        raise AssertionError("str must not be called")


@pytest.mark.parametrize(
    "error, message",
    [
        (ValueError("no way"), "ValueError: no way"),
        (KeyError(), "KeyError without a message, while loading it"),
        (KeyError(3), "KeyError: 3"),
        (Says("text"), "Says: text"),
        (Says(object(), "second"), "Says: second"),
        (CannotSave("it contains a thread"), "it contains a thread"),
        (RecursionError(), "it is nested too deeply for Python's recursion limit"),
        (MemoryError(), "there is not enough memory to save it"),
        (OSError(28, "x"), "the VM's disk is full"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 287 + "…"),
    ],
)
def test_reasons_never_call_str(error, message):
    assert reason(error, "loading it") == message
