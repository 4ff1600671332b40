"""Which modules are looked at, and what is known of them."""

import os
import sys
import zipfile

import pytest
from colab_relay import anew, imported
from edits import ANEW, edit, notes, write


@pytest.mark.parametrize("folder", ["venv/lib/python3.11/site-packages", "x/dist-packages"])
def test_installed_packages_are_left_alone(run, folder):
    write(folder + "/installed.py", "x = 1\n")
    sys.path.insert(0, os.path.abspath(folder))
    main = "import installed\nprint(installed.x)"
    assert run(main) == ("1", "", None)
    edit(folder + "/installed.py", "x = 2\n")
    assert run(main) == ("1", "", None)


def test_modules_of_other_folders_are_left_alone(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    write(str(folder / "helpers.py"), "x = 1\n")
    sys.path.insert(0, str(folder))
    run("import helpers")
    edit(str(folder / "helpers.py"), "x = 2\n")
    assert run("import helpers\nprint(helpers.x)") == ("1", "", None)


def test_a_reloaded_module_is_imported_anew_once(shell, run):
    write("helpers.py", "x = 1\nold = 1\n")
    shell.run("import helpers")
    write("helpers.py", "x = 2\n")
    shell.run("import importlib; importlib.reload(helpers); assert helpers.old")
    main = "import helpers\nprint(helpers.x, hasattr(helpers, 'old'))"
    assert run(main) == ("2 False", ANEW + "helpers", None)
    assert run(main) == ("2 False", "", None)


def test_a_module_from_an_archive_changes(run):
    def pack(x):
        with zipfile.ZipFile("new.zip", "w") as archive:
            archive.writestr("helpers.py", f"x = {x}\n")
            archive.writestr("pkg/__init__.py", "")
            archive.writestr("pkg/sub.py", f"y = {x}\n")
        os.replace("new.zip", "lib.zip")

    pack(1)
    sys.path.insert(0, os.path.abspath("lib.zip"))
    main = "import helpers, pkg.sub\nprint(helpers.x, pkg.sub.y)"
    assert run(main) == ("1 1", "", None)
    pack(22)
    assert run(main) == ("22 22", notes("helpers", "pkg", "pkg.sub"), None)
    assert run(main) == ("22 22", "", None)


def test_without_a_record_every_module_counts_as_changed_once(shell, run):
    """A kernel of an executor that is older than the relay."""
    sys.meta_path[:] = [f for f in sys.meta_path if type(f) is not imported.ColabRelayImports]
    write("helpers.py", "x = 1\n")
    shell.run("import helpers")
    assert run("import helpers")[1] == ANEW + "helpers"
    assert run("import helpers")[1] == ""


def test_files_beyond_the_bound_are_compared_by_their_state(run, monkeypatch):
    monkeypatch.setattr(anew, "MAX_BYTES", 0)
    monkeypatch.setattr(imported, "MAX_FILE", 1)
    write("helpers.py", "x = 1\n")
    main = "import helpers\nprint(helpers.x)"
    assert run(main) == ("1", "", None)
    assert run(main) == ("1", "", None)
    write("new", "x = 2\n", os.stat("helpers.py"))
    os.replace("new", "helpers.py")
    assert run(main) == ("2", ANEW + "helpers", None)
