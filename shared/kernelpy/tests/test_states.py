"""Saved states: they come back, and name nothing of this release."""

import os
import shutil
import sys

from colab_relay.state import operate, rebuild

PLAIN = """
import numpy as np, threading, sys
shared = [1, 2]
holders = [shared, shared]
large = list(range(3000))
owner = np.zeros(66_000, np.uint8)
owner[12] = 5
view = owner[10:20]
lock = threading.Lock()
out = sys.stdout
"""
DEFINED = """
class Base:
    __slots__ = ("x",)
    def double(self): return 2 * self.x
thing = Base()
thing.x = 21
def make():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
count = make()
count()
"""


def restore(path, tmp_path):
    """Loads a copy of a state, which restore removes."""
    folder = tmp_path / "colab-relay-state-x"
    folder.mkdir()
    copy = str(folder / "data.state")
    shutil.copy(path, copy)
    report = operate.restore(copy, os.path.getsize(copy), digest_of(copy))
    assert not folder.exists()
    return report


def digest_of(path):
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def test_a_state_comes_back_and_names_no_release(shell, pickler, tmp_path):
    shell.run(PLAIN + (DEFINED if pickler != "pickle" else ""))
    report = operate.save()
    manifest = report["manifest"]
    assert manifest["pickler"] == pickler and not manifest["skipped"] and not manifest["warnings"]
    assert not [name for name in manifest["libraries"] if name.startswith("colab_relay")]
    with open(report["path"], "rb") as file:
        data = file.read()
    assert data.count(b"colab_relay") == data.count(b"colab_relay_state_rebuild") > 0
    shell.run("%reset -f")
    loaded = restore(report["path"], tmp_path)
    operate.remove(report["path"])
    assert loaded["failed"] == [] and loaded["variable_count"] == manifest["variable_count"]
    names = shell.names
    assert names["holders"][0] is names["holders"][1] and names["view"][2] == 5
    if pickler != "pickle":
        assert names["thing"].double() == 42 and names["count"]() == 2
    assert rebuild.__name__ not in sys.modules


def test_a_state_is_where_the_executor_serves_it(shell, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))  # the disk of TMPDIR was full
    shell.run("x = 5; import os; os.environ['TMPDIR'] = %r" % str(elsewhere))
    path = operate.save()["path"]
    assert os.path.dirname(os.path.dirname(path)) in (str(tmp_path), "/dev/shm")
    operate.remove(path)


def test_remove_removes_states_only(tmp_path, monkeypatch):
    monkeypatch.setenv("COLAB_RELAY_TEMP", str(tmp_path))
    for folder, goes in {"colab-relay-state-x": True, "mine": False, "deep": False}.items():
        path = tmp_path / folder / ("colab-relay-state-y" if folder == "deep" else "")
        path.mkdir(parents=True)
        operate.remove(str(path / "data.state"))
        assert path.exists() is not goes
