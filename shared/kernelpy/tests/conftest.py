"""What the tests share: an IPython shell whose displays are recorded."""

import atexit
import base64
import json
import os
import signal
import sys
import types
import zlib

import pytest
from IPython.core.interactiveshell import InteractiveShell

TESTS = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(TESTS), "colab_relay")
sys.path.insert(0, os.path.dirname(PACKAGE))

from colab_relay import ending, imported, script  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes seconds; pytest.sh -short leaves it out")
    # As in a kernel, also where a shell that started this in the background ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Shell:
    """An IPython shell that records what is displayed, instead of a kernel."""

    def __init__(self, ipython):
        self.displays = []
        self.use(ipython)

    def use(self, ipython):
        self.ipython, self.names = ipython, ipython.user_ns
        ipython.display_pub.publish = self.publish
        ending.own_exits(ipython)

    def publish(self, data=None, metadata=None, **more):
        json.dumps(data)  # as the kernel does
        self.displays.append(data)

    def run(self, code):
        """Runs a cell, which must not raise."""
        self.ipython.run_cell(code, store_history=True).raise_error()

    def displayed(self, mime):
        """What was displayed as that type since the last call."""
        found = [data[mime] for data in self.displays if mime in data]
        self.displays.clear()
        return found


def new_ipython():
    InteractiveShell.clear_instance()
    ipython = InteractiveShell.instance(user_module=types.ModuleType("__main__"))
    atexit.unregister(ipython.atexit_operations)  # takes 60 ms for each shell
    return ipython


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A new IPython whose working directory is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("COLAB_RELAY_TEMP", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delitem(sys.modules, "colab_relay_runs", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    main = sys.modules["__main__"]
    yield Shell(new_ipython())
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main
    sys.modules.pop("colab_relay_runs", None)


@pytest.fixture
def run(shell, capsys, monkeypatch):
    """Runs a program in a new kernel, as far as imports are concerned; returns what it printed,
    the notes, and its exception."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as IPython does
    imported.finder(fresh=True)

    def run(source):
        packed = base64.b64encode(zlib.compress(source.encode())).decode()
        shell.names["_start"] = lambda: script.run("main.py", packed, [])
        shell.ipython._showtraceback = lambda *args: None
        result = shell.ipython.run_cell("_start()")
        out, errs = capsys.readouterr()
        return out.strip(), errs.replace("colab-relay: ", "").strip(), result.error_in_exec

    yield run
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def sources():
    """The sources of the package as the Go side sends them."""
    found = {}
    for folder, _, names in os.walk(PACKAGE):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), PACKAGE).replace(os.sep, "/")
            if path.endswith(".py") and not path.startswith("scripts/"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found[path] = file.read()
    return found


PICKLERS = {"dill": [], "cloudpickle": ["dill"], "pickle": ["dill", "cloudpickle"]}


@pytest.fixture(params=PICKLERS)
def pickler(request, monkeypatch):
    """The name of the library that saves; better ones are hidden, as on a VM without them."""
    for hidden in PICKLERS[request.param]:
        monkeypatch.setitem(sys.modules, hidden, None)
    return request.param
