"""Saving, restoring and keeping: what the operations report, and what they leave behind."""

import os
import time

import pytest
from colab_relay import registry
from colab_relay.state import operate, save, trial
from colab_relay.state.read import Reader

ENTRY = {"setup": "hash", "done": 12}


def file_of(report):
    manifest = report["manifest"]
    return report["path"], manifest["bytes"], manifest["sha256"]


def states(folder):
    return [name for name in os.listdir(folder) if name.startswith(save.PREFIX)]


def test_an_interrupted_restore_changes_nothing(shell, tmp_path, monkeypatch):
    shell.run("a, x = 'saved', 'saved'")
    report = operate.save()
    shell.run("x = 'now'\ndel a")
    load = Reader.load

    def interrupted_at_x(reader, segment):
        if segment.get("name") == "x":
            assert shell.names["a"] == "saved"
            raise KeyboardInterrupt
        return load(reader, segment)

    monkeypatch.setattr(Reader, "load", interrupted_at_x)
    with pytest.raises(KeyboardInterrupt):
        operate.restore(*file_of(report))
    assert shell.names["x"] == "now" and "a" not in shell.names and states(tmp_path) == []


def test_names_are_those_of_the_user(shell):
    shell.run("x = 1\n_private = 2\nimport os")
    names = [name for name, _ in save.user_names(shell.ipython)]
    assert names == ["_private", "os", "x"]


def test_modules_are_imported_again(shell):
    shell.run("import os.path, types\nimport json as j\nmade = types.ModuleType('made')")
    report = operate.save()
    modules = {m["name"]: m["module"] for m in report["manifest"]["modules"]}
    assert modules == {"os": "os", "types": "types", "j": "json"}
    assert report["manifest"]["skipped"] == [
        {"name": "made", "reason": "a module created by code can't be imported again"}
    ]
    shell.run("%reset -f")
    restored = operate.restore(*file_of(report))
    assert shell.names["j"].dumps([1]) == "[1]" and len(restored["modules"]) == 3


def test_overwritten_names_are_reported(shell):
    shell.run("x, y = 1, 2")
    report = operate.save()
    shell.run("del y\nx = 5")
    assert operate.restore(*file_of(report))["overwritten"] == ["x"]
    assert (shell.names["x"], shell.names["y"]) == (1, 2)


def test_kept_variables_are_those_of_the_run(shell, tmp_path):
    assert operate.keep("key", ["xs"], "", 1 << 20, 10) == {"missing": True}
    registry.update({"key": dict(ENTRY)})
    shell.run("xs, other = [1, 2], 'other'\nview = xs")
    kept = operate.keep("key", ["xs", "not_yet"], "", 1 << 20, 10)
    names = [v["name"] for v in kept["manifest"]["variables"]]
    assert names == ["view", "xs"] and kept["done"] == 12 and kept["absent"] == ["not_yet"]
    again = operate.keep("key", ["xs"], kept["manifest"]["sha256"], 1 << 20, 10)
    assert again["unchanged"] and len(states(tmp_path)) == 1
    shell.run("xs, view, not_yet = [], 0, 1")
    registry.runs()["key"] = dict(ENTRY, hollow=True, done=20)
    loaded = operate.restore_kept(*file_of(kept), "key", 12, ["not_yet"])
    assert not loaded["failed"] and registry.runs()["key"] == ENTRY
    assert shell.names["xs"] == [1, 2] and shell.names["view"] is shell.names["xs"]
    assert "not_yet" not in shell.names and states(tmp_path) == []


def test_variables_that_cannot_be_kept_are_reported(shell, tmp_path):
    registry.update({"key": dict(ENTRY)})
    shell.run("small, file, large = 1, open('f', 'w'), bytes(2 << 20)")
    kept = operate.keep("key", ["small", "file"], "", 1 << 20, 10)
    assert [o["name"] for o in kept["unkept"]] == ["file"]
    kept = operate.keep("key", ["small", "large"], "", 1 << 20, 10)
    assert kept["unkept"] == [{"name": "large", "reason": "together they are over 1 MB"}]
    assert operate.keep("key", ["small"], "", 1 << 20, -1)["slow"] and states(tmp_path) == []


def test_kept_variables_are_restored_into_a_waiting_kernel_only(shell):
    registry.update({"key": dict(ENTRY)})
    shell.run("xs = [1]")
    kept = operate.keep("key", ["xs"], "", 1 << 20, 10)
    shell.run("xs = 'new'")
    assert operate.restore_kept(*file_of(kept), "key", 12, []) == {"missing": True}
    assert shell.names["xs"] == "new"


def test_old_folders_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("COLAB_RELAY_TEMP", str(tmp_path))
    for name, age in {"old": 25, "young": 23}.items():
        folder = tmp_path / (save.PREFIX + name)
        folder.mkdir()
        changed = time.time() - age * 3600
        os.utime(str(folder), (changed, changed))
    save.remove_old_folders()
    assert states(tmp_path) == [save.PREFIX + "young"]


def test_a_full_temp_folder_is_not_used(tmp_path, monkeypatch):
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("COLAB_RELAY_TEMP", str(tmp_path))
    monkeypatch.setattr(save, "MEMORY", str(memory))
    free = {str(tmp_path): 1 << 20, str(memory): 2 << 20}
    monkeypatch.setattr(save, "free_bytes", free.get)
    assert save.best_place() == str(memory)
    free[str(tmp_path)] = save.MIN_FREE
    assert save.best_place() == str(tmp_path)


def test_only_small_variables_are_tried():
    def segment(size):
        return {"stream": [0, size], "buffers": []}

    large = segment(trial.MAX_BYTES + 1)
    fitting = [segment(trial.MAX_BYTES) for _ in range(5)]
    assert trial.select_small([large] + fitting) == fitting[:4]
