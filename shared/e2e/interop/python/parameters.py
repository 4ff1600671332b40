"""Compares injected cells with those of papermill: parameters.py FOLDER.

Each folder in FOLDER has a notebook before and after the injection, and the parameters.
"""

import json
import logging
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
from checks import check

INJECTED = "injected-parameters"

# The parameters of the folder "command" as papermill's command line takes them.
COMMAND = [
    *("-p a True -p b None -p c 3 -p d 2.50".split()),
    "-p",
    "e",
    "it's",
    *("-p f -7 -p g inf".split()),
]


def cells(path):
    """Return what an injection decides of each cell: of the injected one, the values."""
    return [
        (
            cell["cell_type"],
            values(cell["source"])
            if INJECTED in cell["metadata"].get("tags", [])
            else cell["source"],
            cell["metadata"].get("tags", []),
        )
        for cell in nbformat.read(path, as_version=4)["cells"]
    ]


def values(source):
    """Return what a cell assigns, in order."""
    namespace = {}
    exec(source, namespace)
    return source.splitlines()[0], repr(
        [(k, v) for k, v in namespace.items() if k != "__builtins__"]
    )


def compare(folder):
    ours, theirs = cells(folder / "after.ipynb"), cells(folder / "papermill.ipynb")
    assert ours == theirs, f"{folder.name}: {ours} instead of {theirs}"
    assert any(INJECTED in tags for _, _, tags in theirs), folder.name


def main(folder):
    logging.disable()  # warnings of papermill
    folders = sorted(path for path in folder.iterdir() if path.name != "command")
    with check("the injected cell has papermill's place and values, for all types of JSON"):
        assert len(folders) == 27, len(folders)
        for each in folders:
            papermill.execute_notebook(
                str(each / "before.ipynb"),
                str(each / "papermill.ipynb"),
                parameters=json.loads((each / "parameters.json").read_text(encoding="utf-8")),
                prepare_only=True,
                kernel_name="python3",
                language="python",
            )
            compare(each)

    with check("the injected cell has the values of papermill -p"):
        each = folder / "command"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "papermill",
                "before.ipynb",
                "papermill.ipynb",
                "--prepare-only",
                *COMMAND,
            ],
            cwd=each,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        compare(each)


main(Path(sys.argv[1]))
