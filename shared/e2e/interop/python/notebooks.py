"""Checks edited notebooks with nbformat and jupytext: notebooks.py FOLDER.

FOLDER/original holds notebooks, and FOLDER/KIND holds each of them after one edit of that kind.
"""

import contextlib
import copy
import io
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import nbformat
from checks import check
from jupytext.cli import jupytext
from nbformat.sign import NotebookNotary

# What the edits of edited.go do to the cells. The ids of new cells are not compared.
MEANINGS = {
    "set-source": lambda cells: [{**cells[0], "source": "a = 1\nb = 2\n"}, *cells[1:]],
    "delete-first": lambda cells: cells[1:],
    "delete-last": lambda cells: cells[:-1],
    "move": lambda cells: [*cells[1:], cells[0]],
    "strip": lambda cells: [
        {**cell, "outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell
        for cell in cells
    ],
}


def read(path):
    return nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=nbformat.NO_CONVERT)


def fault(notebook):
    """Return what is wrong with a notebook, None if nothing is."""
    try:
        nbformat.validate(notebook)
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:500]}"


def round_trip(path):
    """Return whether jupytext --test passes."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return not jupytext(["--test", "--to", "py:percent", str(path)])
        except (Exception, SystemExit):
            return False


def without_ids(cells):
    return [{key: value for key, value in cell.items() if key != "id"} for cell in cells]


def edited(folder, *kinds):
    """Yield kind, path of the original and path of the edited file."""
    found = 0
    for kind in kinds or sorted(set(os.listdir(folder)) - {"original"}):
        for path in sorted((folder / kind).iterdir()):
            found += 1
            yield kind, folder / "original" / path.name, path
    assert found > 100, f"only {found} edited notebooks"


def main(folder):
    logging.disable()  # reading an invalid notebook logs an error
    with check("a valid notebook is valid after every kind of edit, without a warning"):
        for kind, original, path in edited(folder):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                was_valid = fault(read(original)) is None
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                wrong = was_valid and fault(read(path))
            assert not wrong, f"{kind} {path.name}: {wrong}"

    warnings.simplefilter("ignore")
    with check("an edit changes what it should and nothing else"):
        for kind, original, path in edited(folder, *MEANINGS):
            want, got = read(original), read(path)
            cells = MEANINGS[kind](copy.deepcopy(want.pop("cells")))
            assert without_ids(got.pop("cells")) == without_ids(cells), f"{kind} {path.name}"
            if kind == "strip":  # the states of widgets are outputs too
                want["metadata"].pop("widgets", None)
            assert want == got, f"{kind} {path.name}: outside of the cells"

    with check("a signature is void after an edit"), tempfile.TemporaryDirectory() as data:
        notary = NotebookNotary(data_dir=data, db_file=":memory:")
        for kind, original, path in edited(folder):
            signed, after = read(original), read(path)
            notary.sign(signed)
            assert notary.check_signature(signed), original.name
            assert signed == after or not notary.check_signature(after), f"{kind} {path.name}"

    with check("jupytext --test passes after an edit where it passed before"):
        results = {}
        for kind, original, path in edited(folder, "insert-code", "set-outputs", "upgrade", "move"):
            if original not in results:
                results[original] = round_trip(original)
            assert round_trip(path) or not results[original], f"{kind} {path.name}"
        assert sum(results.values()) > 50, results


main(Path(sys.argv[1]))
