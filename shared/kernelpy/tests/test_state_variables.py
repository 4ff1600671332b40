"""Which variables can be saved and loaded, and what is reported of the others."""

import os
import sys

import pytest
from colab_relay.state import operate, rebuild, save, trial
from conftest import TESTS

SHARES = "it shares an object with a variable that can't be restored"
GENERATOR = "it contains a generator, whose state Python can't save"
keeps_functions = pytest.mark.parametrize("pickler", ["dill", "cloudpickle"], indirect=True)


def text_of(name):
    with open(os.path.join(TESTS, "variables", name), encoding="utf-8") as file:
        return file.read()


def reasons(omitted):
    return {o["name"]: o["reason"] for o in omitted}


def save_and_forget(shell):
    report = operate.save()
    shell.run("%reset -f")
    return report["manifest"], (
        report["path"],
        report["manifest"]["bytes"],
        report["manifest"]["sha256"],
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@keeps_functions
def test_a_variable_that_cannot_be_saved_is_reported(shell, pickler, tmp_path):
    shell.run(text_of("unsaveable.py"))
    manifest, file = save_and_forget(shell)
    skipped = reasons(manifest["skipped"])
    assert skipped.pop("database")
    assert skipped == {
        "generator": GENERATOR,
        "in_a_list": GENERATOR,
        "opened": "it contains an open file; the file stays on the VM",
        "coroutine": "it contains a coroutine, whose state Python can't save",
        "held": "it contains a lock that is in use",
        "thread": "it contains a thread",
        "connection": "it contains a socket",
        "process": "it contains a process",
        "raises": "ValueError: no way",
        "raises_with_object": "KeyError without a message, while writing a RaisesWithObject in it",
        "exits": "SystemExit without a message, while writing a Exits in it",
        "too_deep": "it is nested too deeply for Python's recursion limit",
        "namespace": "it is the namespace itself",
        "made_by_hand": "a module created by code can't be imported again",
        "of_class_body": "it needs a module created by code, which can't be imported",
    }
    assert operate.restore(*file)["failed"] == []
    names = shell.names
    assert (
        names["shares_kept"] == {"kept": [1, 2]} and names["kept"] is names["shares_kept"]["kept"]
    )
    assert not (tmp_path / "repr_was_called").exists()


def test_plain_pickle_saves_data_and_reports_the_rest(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "dill", None)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    shell.run(
        "import numpy as np\nclass C: pass\nc = C()\ndef f(): pass\ng = [lambda: 1]\nx = [1]\n"
        "y = {'x': x}\na = np.arange(300_000)\nb = a[5:]\nfrom math import sin"
    )
    manifest, file = save_and_forget(shell)
    remedy = (
        " defined in the notebook, which plain pickle can't keep: "
        "install dill or cloudpickle on the VM and save again"
    )
    function, cls = "it needs a function" + remedy, "it needs the class C" + remedy
    assert reasons(manifest["skipped"]) == {"C": cls, "c": cls, "f": function, "g": function}
    operate.restore(*file)
    names = shell.names
    assert names["y"]["x"] is names["x"] and names["sin"](0) == 0
    names["a"][7] = 9
    assert names["b"][2] == 9


@pytest.mark.long
@keeps_functions
def test_variables_that_will_not_load_are_reported_by_the_save(shell, pickler, tmp_path):
    shell.run(text_of("unloadable.py"))
    report = operate.save()
    manifest = report["manifest"]
    assert manifest["skipped"] == []
    failed = dict(
        line.split(" was saved, but loading it was tried and failed: ")
        for line in manifest["warnings"]
    )
    assert failed['"a_problem"'].startswith("TypeError: ")
    silent = "RuntimeError without a message, while loading it"
    assert failed['"raises"'] == silent
    assert set(failed) <= {'"a_problem"', '"holds_it"', '"raises"', '"ring"'}
    # The trial left nothing in the kernel, and no __del__ ran.
    n = shell.names
    assert n["Raises"].tries == [] and n["Fine"].made == [] and n["shared_state"] == []
    assert not (tmp_path / "deleted").exists()
    shell.run("%reset -f")
    file = report["path"], manifest["bytes"], manifest["sha256"]
    not_restored = reasons(operate.restore(*file)["failed"])
    assert not_restored.pop("a_problem").startswith("TypeError: ")
    assert not_restored == {
        "holds_it": SHARES,
        "raises": silent,
        "ring": SHARES,
        "same_ring": SHARES,
    }
    assert n["history"]["loss"] == [0.5, 0.4] and len(n["history"]["word"]) == 300
    assert n["model_state"]["metric"] == "loss" and n["apart"] == [1, 2]
    assert n["array"].tolist() == [0] * 4 and n["touches"].shared is n["shared_state"]


@pytest.mark.parametrize(
    "code, message",
    [
        ("import os; os._exit(3)", "loading it ended the process"),
        pytest.param(
            "while True: pass",
            "loading it did not end within 2 seconds",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_trial_that_hangs_or_dies_has_no_effect(shell, monkeypatch, code, message):
    monkeypatch.setattr(trial, "SECONDS", 2)
    shell.run(
        "class C:\n  def __init__(self): self.x = 1\n  def __setstate__(self, state):\n    "
        + code
        + "\nc = C()\nd = [1]"
    )
    manifest = operate.save()["manifest"]
    assert manifest["skipped"] == [] and len(manifest["warnings"]) == 1
    assert manifest["warnings"][0].startswith('"c" was saved') and manifest["warnings"][0].endswith(
        message
    )
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.long
def test_functions_of_another_python_are_reported(shell, monkeypatch):
    monkeypatch.setattr(rebuild, "MAGIC", "another")
    monkeypatch.setattr(save, "version_of", lambda package: "0.9" if package == "numpy" else "")
    shell.run(
        "import numpy as np\nclass C:\n  n = 1\n  def m(self): return 2\nc = C()\n"
        "def f(): return 1\nx = [1, f]"
    )
    _, file = save_and_forget(shell)
    monkeypatch.undo()
    report = operate.restore(*file)
    assert [o["name"] for o in report["failed"]] == ["f"]
    assert "define it again" in report["failed"][0]["reason"]
    warnings = "\n".join(report["warnings"])
    assert "C was restored without the code of: m" in warnings
    assert "saved with numpy 0.9, restored into a kernel that has " in warnings
    n = shell.names
    assert n["C"].n == 1 and n["x"][0] == 1 and type(n["c"]) is n["C"]
    with pytest.raises(RuntimeError, match="define it again"):
        n["c"].m()
