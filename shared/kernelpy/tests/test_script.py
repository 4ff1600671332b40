"""Programs of the laptop, run as `python FILE` runs them."""

import base64
import inspect
import os
import pickle
import subprocess
import sys
import zlib

import pytest
from colab_relay import ending, script


def start(shell, source, *arguments, path="job.py"):
    """Runs a program; returns what IPython got of it: the exception, and the lines shown."""
    shown = []
    shell.ipython._showtraceback = lambda etype, value, lines: shown.append(lines)
    packed = base64.b64encode(zlib.compress(source.encode())).decode()
    shell.names["_start"] = lambda: script.run(path, packed, list(arguments))
    result = shell.ipython.run_cell("_start()")
    return result.error_in_exec, "\n".join(shown[0]) if shown else ""


def test_a_program_finds_what_python_gives_it(shell, tmp_path):
    before = list(sys.argv)
    source = '"""What it does."""\nimport sys\nfound = (sys.argv, __name__, __file__, __doc__)\n'
    error, _ = start(shell, source, "--epochs", "3", "zwei Wörter", path="src/träin.py")
    assert error is None
    arguments = ["src/träin.py", "--epochs", "3", "zwei Wörter"]
    file = os.path.join(os.getcwd(), "träin.py")
    assert shell.names["found"] == (arguments, "__main__", file, "What it does.")
    assert sys.argv == before
    assert "__file__" not in shell.names and shell.names["__doc__"] != "What it does."


def test_a_path_of_windows_names_the_file_too(shell):
    start(shell, "found = __file__", path=r"C:\Users\me\job.py")
    assert shell.names["found"] == os.path.join(os.getcwd(), "job.py")


SOURCES = {
    "chained": "def f(): 1/0\ntry: f()\nexcept Exception as e:\n    raise KeyError(1) from e\n",
    "deep": "def f(n):\n    return f(n + 1)\nf(0)\n",
    "syntax": "x = 1\nif x\n    pass\n",
    "own": "class Oops(Exception):\n    pass\ndef f():\n    raise Oops('ä')\nf()\n",
    "interrupt": "def f():\n    raise KeyboardInterrupt\nf()\n",
}


@pytest.mark.parametrize("name", SOURCES)
def test_tracebacks_are_pythons_own(shell, name):
    with open("job.py", "w", encoding="utf-8") as file:
        file.write(SOURCES[name])
    alone = subprocess.run(
        [sys.executable, "-X", "utf8", "job.py"], capture_output=True, encoding="utf-8"
    )
    want = alone.stderr.replace(os.path.join(os.getcwd(), "job.py"), "job.py").rstrip("\n")
    os.remove("job.py")
    error, got = start(shell, SOURCES[name])
    if name == "deep":  # how often the line is repeated depends on the frames below
        want, got = (text.partition("[Previous line repeated")[0] for text in (want, got))
    if name == "indentation":  # Python marks less of a line that it reads from a file
        got = got.replace("^^^^", "^")
    assert got == want
    assert error is not None


EXITS = {
    "sys.exit(0)": (0, ""),
    "sys.exit(3)": (3, ""),
    "quit()": (0, ""),
    "sys.exit(-1)": (255, ""),
    "sys.exit('bad')": ("bad", "bad"),
    "class Q(SystemExit): pass\nraise Q(4)": (4, ""),
    "import argparse\nargparse.ArgumentParser().parse_args()": (2, ""),
}


@pytest.mark.parametrize("code", EXITS)
def test_exits_are_quiet(shell, capsys, recwarn, code):
    want, text = EXITS[code]
    error, shown = start(shell, "import sys\n" + code, "--unknown")
    assert shown == text
    assert (error.code if error else 0) == want
    assert error is None or isinstance(want, str) or type(error) is SystemExit
    assert not recwarn.list
    assert "exit" not in capsys.readouterr().err


def test_a_program_runs_in_a_folder_that_was_deleted(shell, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    error, shown = start(shell, "found = __file__", path="src/job.py")
    assert (error, shown, shell.names["found"]) == (None, "", "job.py")
    assert sys.path[-1] == ""


def test_exits_of_cells_are_quiet_too(shell, recwarn):
    shown = []
    shell.ipython._showtraceback = lambda etype, value, lines: shown.append((etype, lines))
    ending.quiet_exits(shell.ipython)
    for code in ("3", "'bad'", ""):
        shell.ipython.run_cell(
            "import sys, warnings\nwarnings.simplefilter('always')\nsys.exit(%s)" % code
        )
    for code in ("exit(3)\n1/0", "quit", "get_ipython().ask_exit()\n1/0"):
        shell.ipython.run_cell(code)
    shell.ipython.run_cell("1/0")
    exits, other = shown[:6], shown[6]
    assert exits == [(SystemExit, []), (SystemExit, ["bad"])] + [(SystemExit, [])] * 4
    assert other[0] is ZeroDivisionError and len(other[1]) > 1
    assert not [w for w in recwarn.list if "To exit" in str(w.message)]


def test_names_of_the_program_stay(shell):
    start(
        shell,
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n\n"
        "def twice(n):\n    return 2 * n\n\np = Point(1)\n",
    )
    names = shell.names
    assert pickle.loads(pickle.dumps(names["p"])) == names["Point"](1)
    assert inspect.getsource(names["twice"]) == "def twice(n):\n    return 2 * n\n"
    shell.run(
        "def f(x: int): pass\nassert f.__annotations__ == {'x': int}"
    )  # no future flag is left


@pytest.mark.parametrize("code", ["x = 1", "1/0", "raise SystemExit(1)"])
def test_a_failure_elsewhere_is_shown_as_before(shell, code):
    start(shell, code)
    shown = []
    shell.ipython._showtraceback = lambda etype, value, lines: shown.append(etype)
    shell.ipython.run_cell("[][1]")
    assert shown == [IndexError]


def test_asyncio_run_works_in_a_running_loop(shell):
    source = (
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 42\n"
        "found = [asyncio.run(main())]\nasyncio.set_event_loop(loop := asyncio.new_event_loop())\n"
        "found.append(asyncio.get_event_loop().run_until_complete(main()))\nloop.close()\n"
    )
    outside = []

    async def kernel():
        import asyncio

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        outside.append(start(shell, source))
        outside.append(start(shell, "import asyncio\nasyncio.run(1)"))
        await asyncio.sleep(0)
        outside.append((asyncio.current_task() is task, asyncio.get_running_loop() is loop))

    import asyncio

    loop = asyncio.new_event_loop()
    loop.run_until_complete(kernel())
    loop.close()
    assert outside[0] == (None, "")
    assert shell.names["found"] == [42, 42]
    assert "a coroutine was expected" in outside[1][1]
    assert outside[2] == (True, True)
