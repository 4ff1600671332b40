"""Modules that a program gets anew because their files changed."""

import glob
import importlib
import os
import shutil
import sys
import sysconfig

import pytest
from colab_relay import anew, script
from edits import ANEW, edit, notes, write


@pytest.mark.parametrize("bytecode", [False, True])
def test_an_edited_module_is_imported_anew(run, monkeypatch, bytecode):
    monkeypatch.setattr(sys, "dont_write_bytecode", not bytecode)
    write("helpers.py", "def f(): return 1\n")
    main = "from helpers import f\nprint(f())"
    assert run(main) == ("1", "", None)
    assert os.path.exists("__pycache__") == bytecode
    edit("helpers.py", "def f(): return 2\n")
    assert run(main) == ("2", ANEW + "helpers", None)
    assert run(main) == ("2", "", None)


def test_unchanged_modules_keep_their_state(run):
    write("state.py", "seen = []\n")
    write("helpers.py", "x = 1\n")
    assert run("import helpers, state\nstate.seen.append(1)\nprint(state.seen)")[0] == "[1]"
    edit("helpers.py", "x = 2\n")
    main = "import helpers, state\nprint(helpers.x, state.seen)"
    assert run(main) == ("2 [1]", ANEW + "helpers", None)
    os.utime("helpers.py")  # a touched file has not changed
    assert run(main) == ("2 [1]", "", None)


def test_what_a_cell_imported_counts_too(shell, run):
    write("helpers.py", "x = 1\n")
    shell.run("import helpers\nhelpers.seen = True")
    main = "import helpers\nprint(helpers.x, hasattr(helpers, 'seen'))"
    assert run(main) == ("1 True", "", None)
    shell.run("import helpers; assert helpers.x == 1")
    edit("helpers.py", "x = 2\n")
    shell.run("import helpers; assert helpers.x == 1")  # as in any notebook
    assert run(main) == ("2 False", ANEW + "helpers", None)


PACKAGES = {
    "its __init__ uses it": ("from .sub import f\n", "import pkg\nprint(pkg.f())", "pkg"),
    "its __init__ finds it": (
        "import importlib\nimportlib.import_module('.s' + 'ub', __name__)\n",
        "import pkg\nprint(pkg.sub.f())",
        "pkg",
    ),
    "it has no __init__": (None, "from pkg.sub import f\nprint(f())", ""),
}


@pytest.mark.parametrize("case", PACKAGES)
def test_a_module_of_a_package_changes(run, case):
    init, main, with_it = PACKAGES[case]
    if init is not None:
        write("pkg/__init__.py", init)
    write("pkg/sub.py", "def f(): return 1\n")
    assert run(main) == ("1", "", None)
    edit("pkg/sub.py", "def f(): return 2\n")
    assert run(main) == ("2", ANEW + "pkg.sub", None)


USERS = {
    "a function": "from helpers import f\ndef show(): return f()\n",
    "a constant": "from helpers import x\ndef show(): return x\n",
    "by a part of its name": "import importlib\nh = importlib.import_module('help' + 'ers')\n"
    "def show(): return h.x\n",
    "in a function": "def show():\n    import helpers\n    return helpers.x\n",
}


@pytest.mark.parametrize("case", USERS)
def test_what_uses_a_changed_module_is_imported_anew(run, case):
    write("helpers.py", "x = 1\ndef f(): return x\n")
    write("user.py", USERS[case])
    write("over.py", "import user\ndef show(): return user.show()\n")
    write("other.py", "seen = []\n")
    main = "import over, other\nother.seen.append(0)\nprint(over.show(), len(other.seen))"
    assert run(main) == ("1 1", "", None)
    edit("helpers.py", "x = 2\ndef f(): return x\n")
    assert run(main) == ("2 2", ANEW + "helpers", None)


def test_a_module_whose_file_is_gone_is_not_there(run):
    write("helpers.py", "x = 1\n")
    write("user.py", "import helpers\n")
    assert run("import user")[2] is None
    os.remove("helpers.py")
    _, note, error = run("import user")
    assert type(error) is ModuleNotFoundError
    assert note == "no longer loaded because its file is gone: helpers"


def test_a_compiled_module_needs_a_restart(run):
    found = glob.glob(os.path.join(sysconfig.get_config_var("DESTSHARED"), "xxlimited.*"))
    assert found, "this Python has no module xxlimited, which the test copies"
    name = os.path.basename(found[0])
    shutil.copy(found[0], name)
    write("user.py", "import xxlimited\n")
    assert run("import user")[1:] == ("", None)
    shutil.copy(found[0], "new")
    with open("new", "ab") as file:
        file.write(b"\0")
    os.replace("new", name)
    loaded = sys.modules["xxlimited"]
    for _ in range(2):
        note = run("import user")[1]
        assert note.startswith("still the old version, because the kernel cannot load compiled")
        assert note.endswith(": xxlimited; to get the new one: colab-relay restart")
        assert sys.modules["xxlimited"] is loaded


def test_a_syntax_error_is_the_programs_own(run):
    write("helpers.py", "x = 1\n")
    main = "import helpers\nprint(helpers.x)"
    run(main)
    edit("helpers.py", "x = (\n")
    _, note, error = run(main)
    assert (type(error), note) == (SyntaxError, ANEW + "helpers")
    assert (type(run(main)[2]), run(main)[1]) == (SyntaxError, "")
    edit("helpers.py", "x = 3\n")
    assert run(main) == ("3", "", None)


def test_a_note_names_only_what_the_program_imports(shell, run):
    for name in "one", "two", "three":
        write(name + ".py", "x = 1\n")
    write("user.py", "import two\n")
    run("import one, three, user")
    for name in "one", "two", "three":
        edit(name + ".py", "x = 2\n")
    assert run("print(1)") == ("1", "", None)
    assert run("if 0:\n    import one\nimport user\nprint(user.two.x)") == ("2", ANEW + "two", None)
    shell.run("import one; assert one.x == 2")
    assert run("import one, three") == ("", notes("one", "three"), None)  # the cell told of one
    assert run("import one, three") == ("", "", None)


def test_a_cell_after_import_anew_gets_the_new_module_with_a_note(shell, run, capsys):
    write("helpers.py", "x = 1\n")
    shell.run("import helpers")
    edit("helpers.py", "x = 2\n")
    for _ in range(2):
        script.import_anew()  # as before a cell that brings files along
    capsys.readouterr()
    shell.run("import helpers; assert helpers.x == 2")
    assert ANEW + "helpers" in "".join(capsys.readouterr())
    shell.run("import helpers")
    assert ANEW not in "".join(capsys.readouterr())
    assert run("import helpers\nprint(helpers.x)") == ("2", "", None)


def test_a_failing_search_does_not_stop_the_program(run, monkeypatch):
    monkeypatch.setattr(anew, "Search", None)
    note = "changed modules were not looked for: TypeError"
    assert run("print(1)") == ("1", note, None)


def test_the_working_folder_comes_first_while_a_program_runs(run):
    write("xdrlib.py", "x = 'own'\n")
    write("later.py", "x = 'later'\n")
    write("deeper/file", "")
    sys.path.remove("")
    before = list(sys.path)
    main = "import os, sys\nos.chdir('deeper')\nimport later, xdrlib\nprint(later.x, xdrlib.x)"
    assert run(main) == ("later own", "", None)
    assert sys.path == before
    assert run("import sys\nsys.path = None") == ("", "", None)
    sys.path = before
    importlib.invalidate_caches()
