"""Saving, restoring and keeping: what the operations report, and what they leave behind."""

import os

import pytest
from colab_relay.state import operate, save, trial
from colab_relay.state.read import Reader


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
